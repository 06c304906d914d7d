package protocol

import (
	"strings"

	"mcpgateway/internal/wire"
)

// RequestHeaders returns the headers of a modern request. They contain its revision, its method,
// the name, URI or task id it refers to and, for tools/call, the arguments that the tool's
// inputSchema annotates (schema nil = none). The schema may contain invalid annotations
// ([CheckHeaderSchema]). Arguments without a header form are omitted.
//
// A notification has only the header for its method and, if its _meta contains a revision, the
// header for the revision. The SDKs do the same, and servers do not check notifications.
func RequestHeaders(m wire.Message, schema []byte) map[string]string {
	method := m.Method()
	headers := map[string]string{HeaderMethod: method}
	if date := RevisionOf(m); date != "" {
		headers[HeaderProtocolVersion] = date
	}
	if _, literal := nameParam(m, method); literal != nil {
		headers[HeaderName] = encodeHeaderValue(wire.Unquote(literal))
	}
	if method == MethodToolsCall {
		arguments := m.Part(wire.PartArguments)
		eachParamHeader(schema, func(path []string, name string) {
			value, _ := lookupCounted(arguments, path...)
			if text, ok := headerValue(value); ok {
				headers[HeaderParamPrefix+name] = encodeHeaderValue(text)
			}
		})
	}
	return headers
}

// CheckHeaders returns an error if the headers of a modern request do not match its body, see
// [RequestHeaders]. get returns the values of one header. A header that occurs twice is a mismatch.
// If an argument is absent, null, or without a header form, its header must be absent or empty. An
// annotated argument that occurs twice in the body is also a mismatch.
//
// MCP-Protocol-Version and notifications are not checked, and Mcp-Name is checked only for methods
// with a name, URI or task id. CheckHeaders does not report the absence of a name, URI or task id
// that the method requires.
func CheckHeaders(m wire.Message, get func(string) []string, schema []byte) *wire.Error {
	if m.Kind() != wire.Request {
		return nil
	}
	method := m.Method()
	switch given, ok := singleValue(get(HeaderMethod)); {
	case !ok:
		return headerMismatch(HeaderMethod, "must be present exactly once")
	case given != method:
		return headerMismatch(HeaderMethod, "differs from the method in the body")
	}
	if err := checkName(m, method, get(HeaderName)); err != nil || method != MethodToolsCall {
		return err
	}
	var err *wire.Error
	arguments := m.Part(wire.PartArguments)
	eachParamHeader(schema, func(path []string, name string) {
		if err == nil {
			err = checkParam(arguments, path, HeaderParamPrefix+name, get(HeaderParamPrefix+name))
		}
	})
	return err
}

func checkName(m wire.Message, method string, values []string) *wire.Error {
	member, literal := nameParam(m, method)
	switch {
	case member == "" || literal == nil && len(values) == 0:
		return nil
	case literal == nil:
		return headerMismatch(HeaderName, "is present, but params."+member+" is not")
	}
	given, ok := singleValue(values)
	if !ok {
		return headerMismatch(HeaderName, "must be present exactly once")
	}
	if text, ok := decodeHeaderValue(given); !ok {
		return headerMismatch(HeaderName, "is not valid Base64")
	} else if text != wire.Unquote(literal) {
		return headerMismatch(HeaderName, "differs from params."+member)
	}
	return nil
}

func checkParam(arguments []byte, path []string, header string, values []string) *wire.Error {
	value, times := lookupCounted(arguments, path...)
	given, ok := singleValue(values)
	if times > 1 {
		return headerMismatch(header, "repeats an argument that occurs twice")
	}
	if _, can := headerValue(value); !can {
		if given != "" || len(values) > 1 {
			return headerMismatch(header,
				"is present, but the argument "+strings.Join(path, ".")+" is not")
		}
		return nil
	}
	if !ok {
		return headerMismatch(header, "must be present exactly once")
	}
	if text, ok := decodeHeaderValue(given); !ok {
		return headerMismatch(header, "is not valid Base64")
	} else if !headerEquals(text, value) {
		return headerMismatch(header, "differs from the argument "+strings.Join(path, "."))
	}
	return nil
}

func headerMismatch(header, problem string) *wire.Error {
	return wire.Errorf(CodeHeaderMismatch, "Header mismatch: %s %s", header, problem)
}

// singleValue returns the value of a header that occurs once, without surrounding white space (RFC
// 9110 §5.5).
func singleValue(values []string) (value string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	return strings.Trim(values[0], " \t"), true
}

// nameParam returns the member of params that Mcp-Name repeats for this method, "" if there is
// none, and the literal of the member's value, nil if the value is not a string.
func nameParam(m wire.Message, method string) (member string, literal []byte) {
	switch method {
	case MethodToolsCall, MethodPromptsGet:
		member, literal = "name", m.Part(wire.PartName)
	case MethodResourcesRead:
		member = "uri"
		literal, _ = wire.Lookup(m.Part(wire.PartParams), member)
	case MethodTasksGet, MethodTasksUpdate, MethodTasksCancel:
		member = "taskId"
		literal, _ = wire.Lookup(m.Part(wire.PartParams), member)
	}
	if len(literal) == 0 || literal[0] != '"' {
		return member, nil
	}
	return member, literal
}
