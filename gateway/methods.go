package gateway

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A methodSpec describes how requests of one method reach their backend. It has no state and is
// shared by all clients.
type methodSpec struct {
	// namePath is the path of the name in params.
	namePath []string
	// resolve returns the route for the name in the call.
	resolve func(c *clientCall, v *catalog.View) (catalog.Route, bool)
	// mayResolveLater reports whether an unknown name may become known when starting backends have
	// listed their entries. The call then waits.
	mayResolveLater func(c *clientCall, v *catalog.View) bool
	// notFound returns the error for an unknown name.
	notFound func(name string) *wire.Error
	// allowsInput is true if the method allows input requests during a call: a modern backend may
	// respond with input_required, and a call of a stateless client is a resumableCall.
	allowsInput bool
	// capability is the capability without which a backend gets no request; "" = none. The client
	// then gets emptyResult instead of an error, because the gateway has offered the capability on
	// behalf of other backends.
	capability  string
	emptyResult []byte
}

var (
	toolsCallSpec = &methodSpec{
		namePath: plainName, resolve: resolveNamed(catalog.Tools),
		mayResolveLater: mayResolveNamed(catalog.Tools), notFound: unknownName("tool"),
		allowsInput: true,
	}
	promptsGetSpec = &methodSpec{
		namePath: plainName, resolve: resolveNamed(catalog.Prompts),
		mayResolveLater: mayResolveNamed(catalog.Prompts), notFound: unknownName("prompt"),
		allowsInput: true,
	}
	resourcesReadSpec = &methodSpec{
		namePath: []string{"uri"}, resolve: resolveResource, mayResolveLater: mayResolveResource,
		notFound: resourceNotFound, allowsInput: true,
	}
	subscriptionSpec = &methodSpec{
		namePath: []string{"uri"}, resolve: resolveResource, mayResolveLater: mayResolveResource,
		notFound: resourceNotFound,
	}
	promptCompletionSpec = &methodSpec{
		namePath: []string{"ref", "name"}, resolve: resolveNamed(catalog.Prompts),
		mayResolveLater: mayResolveNamed(catalog.Prompts), notFound: unknownName("prompt"),
		capability: "completions", emptyResult: noCompletions,
	}
	resourceCompletionSpec = &methodSpec{
		namePath: []string{"ref", "uri"}, resolve: resolveTemplate,
		mayResolveLater: mayResolveResource, notFound: unknownName("resource"),
		capability: "completions", emptyResult: noCompletions,
	}
	taskSpec = &methodSpec{
		namePath: []string{"taskId"}, notFound: unknownName("task"),
		resolve: func(c *clientCall, _ *catalog.View) (catalog.Route, bool) {
			return c.kind.findTask(c.Name)
		},
		mayResolveLater: func(*clientCall, *catalog.View) bool { return false },
	}

	plainName     = []string{"name"} // is found when a message is parsed
	noCompletions = []byte(`{"completion":{"values":[],"hasMore":false}}`)
)

func (s *methodSpec) hasPlainName() bool { return len(s.namePath) == 1 && s.namePath[0] == "name" }

// nameIn returns the JSON value at namePath in a request, nil if there is none.
func (s *methodSpec) nameIn(m wire.Message) []byte {
	if s.hasPlainName() {
		return m.Part(wire.PartName)
	}
	value, _ := wire.Lookup(m.Part(wire.PartParams), s.namePath...)
	return value
}

// withName returns a request with another name, a JSON string.
func (s *methodSpec) withName(m wire.Message, name []byte) wire.Message {
	m, _ = m.Set(name, append([]string{"params"}, s.namePath...)...)
	return m
}

// completionSpec returns the methodSpec for completion/complete, which depends on the kind of
// reference; nil if the reference is invalid.
func completionSpec(m wire.Message) *methodSpec {
	kind, _ := wire.Lookup(m.Part(wire.PartParams), "ref", "type")
	switch wire.Unquote(kind) {
	case "ref/prompt":
		return promptCompletionSpec
	case "ref/resource":
		return resourceCompletionSpec
	}
	return nil
}

var errNoReference = wire.Errorf(wire.CodeInvalidParams,
	"Invalid params: completion/complete needs a ref to a prompt or a resource")

// resolveNamed resolves the name of a tool or prompt in the list that the client has read, then in
// the current catalog.
func resolveNamed(kind catalog.Kind) func(*clientCall, *catalog.View) (catalog.Route, bool) {
	return func(c *clientCall, v *catalog.View) (catalog.Route, bool) {
		if shown := c.kind.lastListed(kind); shown != nil {
			if route, ok := shown.Lookup(kind, c.Name); ok {
				return route, true
			}
		} else if !v.Settled {
			// an earlier backend in the configuration may still list the name
			return catalog.Route{}, false
		}
		return v.Lookup(kind, c.Name)
	}
}

// mayResolveNamed returns the mayResolveLater function for tools or prompts. While backends are
// starting, any name of a client that has not read a list may resolve later. For other clients,
// only a name with the prefix of a starting backend may resolve later, because the list that they
// have read contained all other names.
func mayResolveNamed(kind catalog.Kind) func(*clientCall, *catalog.View) bool {
	return func(c *clientCall, v *catalog.View) bool {
		return c.kind.lastListed(kind) == nil && !v.Complete || v.MayResolveLater(c.Name)
	}
}

// resolveResource resolves a URI in the current catalog. If no list contains the URI and no
// template matches it, the URI resolves to the backend that has returned it to this client in a
// result.
func resolveResource(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.kind.lastListed(catalog.Resources) == nil {
		// an earlier backend in the configuration may still list the URI
		return catalog.Route{}, false
	}
	if route, ok := v.ResolveResource(c.Name); ok {
		return route, true
	}
	return c.kind.links().route(c.Name)
}

// resolveTemplate resolves the URI template of a resource template, or the URI of a resource.
func resolveTemplate(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.kind.lastListed(catalog.Templates) == nil {
		return catalog.Route{}, false
	}
	if route, ok := v.Lookup(catalog.Templates, c.Name); ok {
		return route, true
	}
	return v.ResolveResource(c.Name)
}

// mayResolveResource returns true while a backend has not settled, because the backend may have a
// template that matches.
func mayResolveResource(_ *clientCall, v *catalog.View) bool { return !v.Complete }

func unknownName(noun string) func(string) *wire.Error {
	return func(name string) *wire.Error {
		return wire.Errorf(wire.CodeInvalidParams, "Unknown %s: %s", noun, truncate(name))
	}
}

// maxURI bounds a URI in an error for a client, and the URI of a subscription, in bytes.
const maxURI = 8 << 10

func resourceNotFound(uri string) *wire.Error {
	e := wire.Errorf(protocol.CodeResourceNotFound, "Resource not found")
	if len(uri) > maxURI {
		uri = truncate(uri)
	}
	e.Data = wire.Encode(map[string]string{"uri": uri})
	return e
}

// errURITooLong returns the error for a subscription to a URI that is longer than maxURI.
func errURITooLong() *wire.Error {
	return wire.Errorf(wire.CodeInvalidParams,
		"Invalid params: the URI of a subscription has at most %d bytes", maxURI)
}

// checkID rejects the id null for a request that reaches a backend or stays open: MCP forbids this
// id, and two such requests cannot be distinguished. Any other request with the id null gets a
// response with this id.
func checkID(m wire.Message) *wire.Error {
	if m.ID() != "null" {
		return nil
	}
	switch method := m.Method(); method {
	case protocol.MethodToolsCall, protocol.MethodPromptsGet, protocol.MethodResourcesRead,
		protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe,
		protocol.MethodCompletionComplete,
		protocol.MethodSetLogLevel, protocol.MethodTasksGet, protocol.MethodTasksResult,
		protocol.MethodTasksList,
		protocol.MethodTasksCancel, protocol.MethodTasksUpdate, protocol.MethodSubscriptionsListen:
		return wire.Errorf(wire.CodeInvalidRequest,
			"Invalid request: %s did not run because its id is null: "+
				"send it with a string or a number as its id", method)
	}
	return nil
}
