package gateway

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A methodSpec describes how requests of one method reach their backend. It has no state and is
// shared by all sessions.
type methodSpec struct {
	// resolve returns the route for the name in the call.
	resolve func(c *clientCall, v *catalog.View) (catalog.Route, bool)
	// mayResolveLater reports whether an unknown name may become known when starting backends have
	// listed their entries. The call then waits.
	mayResolveLater func(c *clientCall, v *catalog.View) bool
	// notFound returns the error for an unknown name.
	notFound func(name string) *wire.Error
	// send sends the request, with the name that the backend uses.
	send func(c *clientCall)
	// allowsInput is true if the method allows input requests during a call: a modern backend may
	// respond with input_required, and a call of a stateless client is a resumableCall.
	allowsInput bool
}

var (
	toolsCallSpec = &methodSpec{
		resolve: resolveNamed(catalog.Tools), mayResolveLater: mayResolveNamed(catalog.Tools),
		notFound: unknownName("tool"), send: (*clientCall).sendNamed, allowsInput: true,
	}
	promptsGetSpec = &methodSpec{
		resolve: resolveNamed(catalog.Prompts), mayResolveLater: mayResolveNamed(catalog.Prompts),
		notFound: unknownName("prompt"), send: (*clientCall).sendNamed, allowsInput: true,
	}
	resourcesReadSpec = &methodSpec{
		resolve: resolveResource, mayResolveLater: mayResolveResource,
		notFound: resourceNotFound, send: (*clientCall).sendAsIs, allowsInput: true,
	}
	subscriptionSpec = &methodSpec{resolve: resolveResource, mayResolveLater: mayResolveResource,
		notFound: resourceNotFound, send: (*clientCall).sendAsIs}
)

// resolveNamed resolves the name of a tool or prompt in the list that the client has read, then in
// the current catalog.
func resolveNamed(kind catalog.Kind) func(*clientCall, *catalog.View) (catalog.Route, bool) {
	return func(c *clientCall, v *catalog.View) (catalog.Route, bool) {
		if shown := c.lastListed(kind); shown != nil {
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
		return c.lastListed(kind) == nil && !v.Complete || v.MayResolveLater(c.Name)
	}
}

// lastListed returns the snapshot of the list that the client has read. It is nil if the client
// has not read the list, and for stateless clients, whose lists are not tracked.
func (c *clientCall) lastListed(kind catalog.Kind) *catalog.Snapshot {
	if c.stateless != nil {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.lists[kind].listed
}

// resolveResource resolves a URI in the current catalog. If no list contains the URI and no
// template matches it, the URI resolves to the backend that has returned it to this client in a
// result.
func resolveResource(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.lastListed(catalog.Resources) == nil {
		// an earlier backend in the configuration may still list the URI
		return catalog.Route{}, false
	}
	if route, ok := v.ResolveResource(c.Name); ok {
		return route, true
	}
	return c.links().route(c.Name)
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

func (c *clientCall) sendNamed() {
	if c.Name != c.Route.Original {
		c.request.Name = c.Route.OriginalJSON
	}
	c.sendAsIs()
}

func (c *clientCall) sendAsIs() { c.newBackendCall(c.backendMessage()).Send() }

// callByName starts a call whose name is params.name. Here and below, client is nil for a session
// client.
func (s *Session) callByName(client *statelessClient, r *peer.Request, spec *methodSpec) {
	s.callByValue(client, r, spec, "name", r.Part(wire.PartName))
}

// callByParam starts a call whose name is another member of params.
func (s *Session) callByParam(client *statelessClient, r *peer.Request, spec *methodSpec,
	member string) {
	value, _ := wire.Lookup(r.Part(wire.PartParams), member)
	s.callByValue(client, r, spec, member, value)
}

func (s *Session) callByValue(client *statelessClient, r *peer.Request, spec *methodSpec,
	member string, value []byte) {
	if len(value) == 0 || value[0] != '"' {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s needs a %s", r.Method(),
			member))
		return
	}
	s.startCall(client, r, spec, wire.Unquote(value))
}
