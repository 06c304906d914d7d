package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// The codes of JSON-RPC 2.0 §5.1, and the one of ours that MCP gateways and
// servers commonly give to a request that comes before the handshake. The
// range -32020 … -32099 is the MCP specification's.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
	CodeNotInitialized = -32002
)

// An Error is the error object of a JSON-RPC response, and the only kind of
// error that is shown to the other side.
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

// Unwrap returns what caused the error, nil if that is not known.
func (e *Error) Unwrap() error { return e.cause }

// ReadError decodes the error object of a response, which the Error keeps; what
// cannot be read of it is left at its zero value, for a stranger's error may be
// anything.
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
