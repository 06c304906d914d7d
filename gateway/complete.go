package gateway

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

var (
	toPromptRef = &road{
		find: findNamed(catalog.Prompts), mayCome: mayComeNamed(catalog.Prompts),
		unknown: nobodyHas("prompt"), send: (*call).completePrompt,
	}
	toResourceRef = &road{
		find: findTemplate, mayCome: mayComeResource,
		unknown: nobodyHas("resource"), send: (*call).completeResource,
	}
)

// complete asks the backend that has what is to be completed: a prompt, or a
// resource by its URI or its template.
func (s *Session) complete(guest *guest, r *peer.Request) {
	ref, _ := wire.Lookup(r.Part(wire.PartParams), "ref")
	kind, _ := wire.Lookup(ref, "type")
	name, _ := wire.Lookup(ref, "name")
	uri, _ := wire.Lookup(ref, "uri")
	switch wire.Unquote(kind) {
	case "ref/prompt":
		s.by(guest, r, toPromptRef, "ref with a name", name)
	case "ref/resource":
		s.by(guest, r, toResourceRef, "ref with a uri", uri)
	default:
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: completion/complete needs a ref to a prompt or a resource"))
	}
}

// findTemplate finds the backend that has a template, or a resource.
func findTemplate(c *call, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.shown(catalog.Templates) == nil {
		return catalog.Route{}, false
	}
	if route, ok := v.Lookup(catalog.Templates, c.Name); ok {
		return route, true
	}
	return v.ResolveResource(c.Name)
}

func (c *call) completePrompt() {
	m := c.message()
	if c.Name != c.Route.Original {
		m, _ = m.Set(c.Route.OriginalJSON, "params", "ref", "name")
	}
	c.sendCompletion(m)
}

func (c *call) completeResource() { c.sendCompletion(c.message()) }

// sendCompletion sends the request, unless the backend completes nothing: that
// another one does is no reason to tell the client so with an error.
func (c *call) sendCompletion(m wire.Message) {
	if !c.s.g.Backends.View().HasCapability(c.Route.Backend, "completions") {
		c.answer([]byte(`{"completion":{"values":[],"hasMore":false}}`))
		return
	}
	c.s.g.Backends.Send(c.Route.Backend, m, c.pending)
}
