package gateway

import (
	"fmt"
	"strings"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// An requiredCapability is what a client has to declare in order to be asked something: a
// capability, and perhaps a part of it.
type requiredCapability struct{ capability, sub string }

// capabilityFor returns the ability for what a client is asked; ok is false if there is
// nothing that it could declare for that.
func capabilityFor(m wire.Message) (a requiredCapability, ok bool) {
	params := m.Part(wire.PartParams)
	switch m.Method() {
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
		mode := elicitationMode(params)
		return requiredCapability{"elicitation", mode}, mode == "form" || mode == "url"
	}
	return requiredCapability{}, false
}

// missing returns what a client of these capabilities has not declared of the ability:
// the whole capability, or the part; "" if it has declared all.
func (a requiredCapability) missing(can []byte) string {
	switch {
	case !catalog.Declares(can, a.capability):
		return a.capability
	case a.sub == "",
		a.capability == "elicitation" && declaresElicitation(can, a.sub),
		a.capability != "elicitation" && catalog.Declares(can, a.capability, a.sub):
		return ""
	}
	return a.capability + "." + truncate(a.sub)
}

// checkDeclared says why a client of these capabilities is not asked something, nil if it is:
// what it has not declared to be able to do, it would refuse itself.
func checkDeclared(can []byte, m wire.Message) *wire.Error {
	a, _ := capabilityFor(m)
	switch missing := a.missing(can); {
	case a.capability == "", missing == a.capability:
		return errNotDeclared(m)
	case missing != "":
		return wire.Errorf(wire.CodeInvalidParams, "Invalid params: the client has not declared %s", missing)
	}
	return nil
}

func errNotDeclared(m wire.Message) *wire.Error {
	return wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s: the client has not declared it", truncate(m.Method()))
}

// A missingCapabilities is what a backend asks though its client has not declared that it can do it.
// The zero value is none.
type missingCapabilities struct {
	problems []string
	required map[string]map[string]struct{}
}

// add notes a question if there is something that the client has not declared and could.
func (s *missingCapabilities) add(can []byte, m wire.Message) {
	a, ok := capabilityFor(m)
	missing := a.missing(can)
	if !ok || missing == "" {
		return
	}
	s.problems = append(s.problems, truncate(m.Method())+": the client has not declared the capability "+missing)
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

func (s *missingCapabilities) isEmpty() bool { return len(s.problems) == 0 }

// String says what is asked, and what would have to be declared for it.
func (s *missingCapabilities) String() string { return strings.Join(s.problems, "; ") }

// clientError is what a client of the stateless era is told of it.
func (s *missingCapabilities) clientError(backend string) *wire.Error {
	return errMissingCapability(wire.Encode(s.required), "backend %s asks %s", backend, s)
}

// checkInputsDeclared says why a client of the stateless era, of these capabilities, is not given what a
// backend asks; nil if it is.
func checkInputsDeclared(backend string, can []byte, inputs []protocol.InputRequest) (err error) {
	var s missingCapabilities
	for _, input := range inputs {
		m := wire.NewRequest("0", input.Method, input.Params)
		s.add(can, m)
		switch a, ok := capabilityFor(m); {
		case a.capability == "":
			err = &peer.BadResponseError{Err: fmt.Errorf("its inputRequests have %s, which a backend may not ask", truncate(input.Method))}
		case !ok:
			err = &peer.BadResponseError{Err: fmt.Errorf("its inputRequests have an elicitation of mode %s, which there is not", truncate(a.sub))}
		}
	}
	if !s.isEmpty() {
		return s.clientError(backend)
	}
	return err
}

// usesTools reports whether the params of sampling/createMessage have the client's model
// use tools.
func usesTools(params []byte) bool {
	tools, _ := wire.Lookup(params, "tools")
	choice, _ := wire.Lookup(params, "toolChoice")
	return tools != nil || choice != nil
}

// elicitationMode returns the way in which the client is to find out; "form" is
// the one that there always was.
func elicitationMode(params []byte) string {
	if mode, _ := wire.Lookup(params, "mode"); mode != nil {
		return wire.Unquote(mode)
	}
	return "form"
}

// declaresElicitation knows that "an empty object is equivalent to declaring support for
// form mode only" (elicitation, capabilities).
func declaresElicitation(can []byte, mode string) bool {
	if mode == "form" && !catalog.Declares(can, "elicitation", "url") {
		return catalog.Declares(can, "elicitation")
	}
	return (mode == "form" || mode == "url") && catalog.Declares(can, "elicitation", mode)
}
