package protocol

import (
	"strings"

	"mcpgateway/internal/wire"
)

// Headers that repeat what stands in the body of a stateless request, for those on the
// way who do not read it.
const (
	headerVersion = "MCP-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
)

// RequestHeaders returns the headers that repeat what stands in a stateless request: its
// revision, its method, what it is about and, if it is a tools/call, those of its
// arguments that the tool's inputSchema wants there; schema nil = none. Of what
// schema wants against the rules ([CheckHeaderSchema]) nothing may come. An argument that
// no header can say is left out.
//
// A notification has its method and, if its _meta names one, its revision: so do the
// SDKs, and nothing is asked of it.
func RequestHeaders(m wire.Message, schema []byte) map[string]string {
	method := m.Method()
	headers := map[string]string{headerMethod: method}
	if date := RevisionOf(m); date != "" {
		headers[headerVersion] = date
	}
	if _, literal := subject(m, method); literal != nil {
		headers[headerName] = encodeHeader(wire.Unquote(literal))
	}
	if method == "tools/call" {
		arguments := m.Part(wire.PartArguments)
		eachHeader(schema, func(path []string, name string) {
			value, _ := lookup(arguments, path...)
			if text, ok := headerText(value); ok {
				headers[headerParam+name] = encodeHeader(text)
			}
		})
	}
	return headers
}

// CheckHeaders reports where the headers of a stateless request do not repeat what
// stands in its body, as [RequestHeaders] would have them; get returns the values of one
// header. A header that stands there twice repeats nothing. That of an argument which
// is absent, null, or of a type that no header can say must be absent or empty.
//
// MCP-Protocol-Version is not looked at, and nothing is asked of a notification. A
// request that does not say what it is about, as it must, is none of ours either.
func CheckHeaders(m wire.Message, get func(string) []string, schema []byte) *wire.Error {
	if m.Kind() != wire.Request {
		return nil
	}
	method := m.Method()
	switch given, ok := only(get(headerMethod)); {
	case !ok:
		return mismatch(headerMethod, "must be there, once")
	case given != method:
		return mismatch(headerMethod, "is not the method of the body")
	}
	if err := checkName(m, method, get(headerName)); err != nil || method != "tools/call" {
		return err
	}
	var err *wire.Error
	arguments := m.Part(wire.PartArguments)
	eachHeader(schema, func(path []string, name string) {
		if err == nil {
			err = checkParam(arguments, path, headerParam+name, get(headerParam+name))
		}
	})
	return err
}

func checkName(m wire.Message, method string, values []string) *wire.Error {
	member, literal := subject(m, method)
	switch {
	case member == "" || literal == nil && len(values) == 0:
		return nil
	case literal == nil:
		return mismatch(headerName, "is there, and no params."+member)
	}
	given, ok := only(values)
	if !ok {
		return mismatch(headerName, "must be there, once")
	}
	if text, ok := decodeHeader(given); !ok {
		return mismatch(headerName, "is not Base64")
	} else if text != wire.Unquote(literal) {
		return mismatch(headerName, "is not params."+member)
	}
	return nil
}

func checkParam(arguments []byte, path []string, header string, values []string) *wire.Error {
	value, times := lookup(arguments, path...)
	given, ok := only(values)
	if times > 1 {
		return mismatch(header, "has an argument that stands twice")
	}
	if _, can := headerText(value); !can {
		if given != "" || len(values) > 1 {
			return mismatch(header, "is there, and not the argument "+strings.Join(path, "."))
		}
		return nil
	}
	if !ok {
		return mismatch(header, "must be there, once")
	}
	if text, ok := decodeHeader(given); !ok {
		return mismatch(header, "is not Base64")
	} else if !says(text, value) {
		return mismatch(header, "is not the argument "+strings.Join(path, "."))
	}
	return nil
}

func mismatch(header, problem string) *wire.Error {
	return wire.Errorf(CodeHeaderMismatch, "Header mismatch: %s %s", header, problem)
}

// only returns the value of a header that is there once. The white space around it is
// not part of it (RFC 9110 §5.5).
func only(values []string) (value string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	return strings.Trim(values[0], " \t"), true
}

// subject returns the member of the params that tells what a request of that method is
// about, "" if there is none, and the literal of the string that stands there, nil if
// none does.
func subject(m wire.Message, method string) (member string, literal []byte) {
	switch method {
	case "tools/call", "prompts/get":
		member, literal = "name", m.Part(wire.PartName)
	case "resources/read":
		member = "uri"
		literal, _ = wire.Lookup(m.Part(wire.PartParams), member)
	case "tasks/get", "tasks/update", "tasks/cancel":
		member = "taskId"
		literal, _ = wire.Lookup(m.Part(wire.PartParams), member)
	}
	if len(literal) == 0 || literal[0] != '"' {
		return member, nil
	}
	return member, literal
}
