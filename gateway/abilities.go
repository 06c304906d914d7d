package gateway

import (
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// An ability is what a client has to declare in order to be asked something: a
// capability, and perhaps a part of it.
type ability struct{ capability, part string }

// abilityFor returns the ability for what a client is asked; ok is false if there is
// nothing that it could declare for that.
func abilityFor(m wire.Message) (a ability, ok bool) {
	params := m.Part(wire.PartParams)
	switch mcp.MCPMethod(m.Method()) {
	case mcp.MethodListRoots:
		return ability{"roots", ""}, true
	case mcp.MethodSamplingCreateMessage:
		// "The client MUST return an error if this field is provided but
		// ClientCapabilities.sampling.tools is not declared" (schema, tools and
		// toolChoice).
		if usesTools(params) {
			return ability{"sampling", "tools"}, true
		}
		return ability{"sampling", ""}, true
	case mcp.MethodElicitationCreate:
		mode := elicitationMode(params)
		return ability{"elicitation", mode}, mode == "form" || mode == "url"
	}
	return ability{}, false
}

// lacking returns what a client of these capabilities has not declared of the ability:
// the whole capability, or the part; "" if it has declared all.
func (a ability) lacking(can []byte) string {
	switch {
	case !catalog.Declares(can, a.capability):
		return a.capability
	case a.part == "",
		a.capability == "elicitation" && canElicit(can, a.part),
		a.capability != "elicitation" && catalog.Declares(can, a.capability, a.part):
		return ""
	}
	return a.capability + "." + brief(a.part)
}

// mayAsk says why a client of these capabilities is not asked something, nil if it is:
// what it has not declared to be able to do, it would refuse itself.
func mayAsk(can []byte, m wire.Message) *wire.Error {
	a, _ := abilityFor(m)
	switch lacking := a.lacking(can); {
	case a.capability == "", lacking == a.capability:
		return notDeclared(m)
	case lacking != "":
		return wire.Errorf(wire.CodeInvalidParams, "Invalid params: the client has not declared %s", lacking)
	}
	return nil
}

func notDeclared(m wire.Message) *wire.Error {
	return wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s: the client has not declared it", brief(m.Method()))
}

// A shortfall is what a backend asks though its client has not declared that it can do it.
// The zero value is none.
type shortfall struct {
	what     []string
	required map[string]map[string]struct{}
}

// add notes a question if there is something that the client has not declared and could.
func (s *shortfall) add(can []byte, m wire.Message) {
	a, ok := abilityFor(m)
	lacking := a.lacking(can)
	if !ok || lacking == "" {
		return
	}
	s.what = append(s.what, brief(m.Method())+": the client has not declared the capability "+lacking)
	if s.required == nil {
		s.required = make(map[string]map[string]struct{})
	}
	if s.required[a.capability] == nil {
		s.required[a.capability] = make(map[string]struct{})
	}
	if a.part != "" {
		s.required[a.capability][a.part] = struct{}{}
	}
}

func (s *shortfall) none() bool { return len(s.what) == 0 }

// String says what is asked, and what would have to be declared for it.
func (s *shortfall) String() string { return strings.Join(s.what, "; ") }

// failure is what a client of the stateless era is told of it.
func (s *shortfall) failure(backend string) *wire.Error {
	return lacks(wire.Encode(s.required), "backend %s asks %s", backend, s)
}

// excess says why a client of the stateless era, of these capabilities, is not given what a
// backend asks; nil if it is.
func excess(backend string, can []byte, inputs []protocol.InputRequest) (err error) {
	var s shortfall
	for _, in := range inputs {
		m := wire.NewRequest("0", in.Method, in.Params)
		s.add(can, m)
		switch a, ok := abilityFor(m); {
		case a.capability == "":
			err = &peer.BadResponseError{Err: fmt.Errorf("its inputRequests have %s, which a backend may not ask", brief(in.Method))}
		case !ok:
			err = &peer.BadResponseError{Err: fmt.Errorf("its inputRequests have an elicitation of mode %s, which there is not", brief(a.part))}
		}
	}
	if !s.none() {
		return s.failure(backend)
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

// canElicit knows that "an empty object is equivalent to declaring support for
// form mode only" (elicitation, capabilities).
func canElicit(can []byte, mode string) bool {
	if mode == "form" && !catalog.Declares(can, "elicitation", "url") {
		return catalog.Declares(can, "elicitation")
	}
	return (mode == "form" || mode == "url") && catalog.Declares(can, "elicitation", mode)
}
