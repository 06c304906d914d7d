package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Codes of JSON-RPC 2.0 §5.1, and CodeNotInitialized, which MCP gateways and servers commonly
// return for a request before the handshake. The range from -32020 to -32099 is reserved by the MCP
// specification.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
	CodeNotInitialized = -32002
)

// An Error is the error object of a JSON-RPC response. All errors that the gateway itself creates
// for a client or backend have this type.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`

	cause error
}

// Errorf returns an Error without data.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause of the error, nil if it is unknown.
func (e *Error) Unwrap() error { return e.cause }

// ReadError decodes the error object of a response. Invalid members keep their zero values, because
// other implementations may send arbitrary values. The Error shares memory with object.
func ReadError(object []byte) *Error {
	e := &Error{}
	Members(object, func(key string, value []byte, _ int) {
		switch key {
		case "code":
			if n, err := strconv.Atoi(string(value)); err == nil {
				e.Code = n
			}
		case "message":
			e.Message = Unquote(value)
		case "data":
			e.Data = value
		}
	})
	return e
}
