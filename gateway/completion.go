package gateway

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

var (
	promptCompletionSpec = &methodSpec{
		resolve: resolveNamed(catalog.Prompts), mayResolveLater: mayResolveNamed(catalog.Prompts),
		notFound: unknownName("prompt"), send: (*clientCall).completePrompt,
	}
	resourceCompletionSpec = &methodSpec{
		resolve: resolveTemplate, mayResolveLater: mayResolveResource,
		notFound: unknownName("resource"), send: (*clientCall).completeResource,
	}
)

// completeArgument forwards completion/complete to the backend of the prompt, resource or
// template.
func (s *Session) completeArgument(client *statelessClient, r *peer.Request) {
	ref, _ := wire.Lookup(r.Part(wire.PartParams), "ref")
	kind, _ := wire.Lookup(ref, "type")
	name, _ := wire.Lookup(ref, "name")
	uri, _ := wire.Lookup(ref, "uri")
	switch wire.Unquote(kind) {
	case "ref/prompt":
		s.callByValue(client, r, promptCompletionSpec, "ref with a name", name)
	case "ref/resource":
		s.callByValue(client, r, resourceCompletionSpec, "ref with a uri", uri)
	default:
		s.fail(r, wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: completion/complete needs a ref to a prompt or a resource"))
	}
}

// resolveTemplate resolves the URI template of a resource template, or the URI of a resource.
func resolveTemplate(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.lastListed(catalog.Templates) == nil {
		return catalog.Route{}, false
	}
	if route, ok := v.Lookup(catalog.Templates, c.Name); ok {
		return route, true
	}
	return v.ResolveResource(c.Name)
}

func (c *clientCall) completePrompt() {
	m := c.backendMessage()
	if c.Name != c.Route.Original {
		m, _ = m.Set(c.Route.OriginalJSON, "params", "ref", "name")
	}
	c.sendCompletion(m)
}

func (c *clientCall) completeResource() { c.sendCompletion(c.backendMessage()) }

// sendCompletion sends the request. If the backend does not support completions, the result is
// empty instead of an error, because the gateway has offered the capability on behalf of other
// backends.
func (c *clientCall) sendCompletion(m wire.Message) {
	if !c.s.g.Backends.View().HasCapability(c.Route.Backend, "completions") {
		c.replyResult([]byte(`{"completion":{"values":[],"hasMore":false}}`))
		return
	}
	c.newBackendCall(m).Send()
}
