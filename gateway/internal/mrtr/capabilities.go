package mrtr

import (
	"fmt"
	"strings"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A requiredCapability is the client capability that a request requires. Sub is the member of the
// capability that the request also requires; "" = none.
type requiredCapability struct{ capability, sub string }

// capabilityFor returns the capability that a request to a client requires; ok is false if no
// capability covers it.
func capabilityFor(method string, params []byte) (a requiredCapability, ok bool) {
	switch method {
	case protocol.MethodRootsList:
		return requiredCapability{"roots", ""}, true
	case protocol.MethodSamplingCreateMessage:
		// "The client MUST return an error if this field is provided but
		// ClientCapabilities.sampling.tools is not declared" (schema, tools and
		// toolChoice).
		if usesTools(params) {
			return requiredCapability{"sampling", "tools"}, true
		}
		return requiredCapability{"sampling", ""}, true
	case protocol.MethodElicitationCreate:
		mode := ElicitationMode(params)
		return requiredCapability{"elicitation", mode}, mode == "form" || mode == "url"
	}
	return requiredCapability{}, false
}

// missing returns what a client with these capabilities has not declared: the capability, or the
// member of a declared capability; "" if nothing is missing.
func (a requiredCapability) missing(caps []byte) string {
	switch {
	case !catalog.Declares(caps, a.capability):
		return a.capability
	case a.sub == "",
		a.capability == "elicitation" && DeclaresElicitation(caps, a.sub),
		a.capability != "elicitation" && catalog.Declares(caps, a.capability, a.sub):
		return ""
	}
	return a.capability + "." + truncate(a.sub)
}

// CheckDeclared returns an error if a client with these capabilities must not receive the request,
// because the client has not declared the required capability or no capability covers the request.
func CheckDeclared(caps []byte, m wire.Message) *wire.Error {
	a, _ := capabilityFor(m.Method(), m.Part(wire.PartParams))
	switch missing := a.missing(caps); {
	case a.capability == "", missing == a.capability:
		return NotDeclaredError(m)
	case missing != "":
		return wire.Errorf(wire.CodeInvalidParams, "Invalid params: the client has not declared %s",
			missing)
	}
	return nil
}

func NotDeclaredError(m wire.Message) *wire.Error {
	return wire.Errorf(wire.CodeMethodNotFound,
		"Method not found: %s: the client has not declared it", truncate(m.Method()))
}

// MissingCapabilities collects requests whose required capabilities the client has not declared.
type MissingCapabilities struct {
	problems []string
	required map[string]map[string]struct{}
}

// Add records a request if the client could have declared the required capability but has not.
func (s *MissingCapabilities) Add(caps []byte, method string, params []byte) {
	a, ok := capabilityFor(method, params)
	missing := a.missing(caps)
	if !ok || missing == "" {
		return
	}
	s.problems = append(s.problems,
		truncate(method)+": the client has not declared the capability "+missing)
	if s.required == nil {
		s.required = make(map[string]map[string]struct{})
	}
	if s.required[a.capability] == nil {
		s.required[a.capability] = make(map[string]struct{})
	}
	if a.sub != "" {
		s.required[a.capability][a.sub] = struct{}{}
	}
}

func (s *MissingCapabilities) IsEmpty() bool { return len(s.problems) == 0 }

// String lists the requests and their missing capabilities.
func (s *MissingCapabilities) String() string { return strings.Join(s.problems, "; ") }

// ClientError returns the error for a modern client. The error data contain the required
// capabilities.
func (s *MissingCapabilities) ClientError(backend string) *wire.Error {
	return MissingCapabilityError(wire.Encode(s.required), "backend %s requests %s", backend, s)
}

// CheckInputsDeclared returns an error if a modern client with these capabilities must not
// receive a backend's input requests.
func CheckInputsDeclared(backend string, caps []byte, inputs []protocol.InputRequest) (err error) {
	var s MissingCapabilities
	for _, input := range inputs {
		s.Add(caps, input.Method, input.Params)
		switch a, ok := capabilityFor(input.Method, input.Params); {
		case a.capability == "":
			err = &peer.BadResponseError{Err: fmt.Errorf(
				"its inputRequests contain %s, which is not allowed there", truncate(input.Method))}
		case !ok:
			err = &peer.BadResponseError{Err: fmt.Errorf(
				"its inputRequests contain an elicitation of the unknown mode %s", truncate(a.sub))}
		}
	}
	if !s.IsEmpty() {
		return s.ClientError(backend)
	}
	return err
}

// usesTools reports whether the params of sampling/createMessage allow the client's model to use
// tools.
func usesTools(params []byte) bool {
	tools, _ := wire.Lookup(params, "tools")
	choice, _ := wire.Lookup(params, "toolChoice")
	return tools != nil || choice != nil
}

// ElicitationMode returns the elicitation mode; "form", the original mode, if absent.
func ElicitationMode(params []byte) string {
	if mode, _ := wire.Lookup(params, "mode"); mode != nil {
		return wire.Unquote(mode)
	}
	return "form"
}

// DeclaresElicitation reports whether a client has declared an elicitation mode: "an empty object
// is equivalent to declaring support for form mode only" (elicitation, capabilities).
func DeclaresElicitation(caps []byte, mode string) bool {
	if mode == "form" && !catalog.Declares(caps, "elicitation", "url") {
		return catalog.Declares(caps, "elicitation")
	}
	return (mode == "form" || mode == "url") && catalog.Declares(caps, "elicitation", mode)
}

// MissingCapabilityError returns an error for a modern client. The error lists the capabilities
// that a call requires.
func MissingCapabilityError(required []byte, format string, args ...any) *wire.Error {
	e := wire.Errorf(protocol.CodeMissingCapability, "Missing client capability: "+format, args...)
	e.Data = wire.EditObject(nil, nil, wire.Member{Key: "requiredCapabilities", Text: required})
	return e
}
