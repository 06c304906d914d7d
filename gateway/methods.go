package gateway

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A methodSpec is how the requests of a method come to the backend that they are for. A
// methodSpec is a value without state: all sessions share it.
type methodSpec struct {
	// resolve returns where that is which a call names.
	resolve func(c *clientCall, v *catalog.View) (catalog.Route, bool)
	// mayResolveLater reports whether a name that nobody has may yet be somebody's, so that
	// it is worth waiting for backends that are starting.
	mayResolveLater func(c *clientCall, v *catalog.View) bool
	// notFound answers for a name that nobody has.
	notFound func(name string) *wire.Error
	// send sends the request. The backend has its own word for the name.
	send func(c *clientCall)
	// allowsInput says that the answer may be that input is needed, in the stateless era: it
	// is what a server asks for there.
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
	subscribeSpec   = &methodSpec{resolve: resolveResource, mayResolveLater: mayResolveResource, notFound: resourceNotFound, send: subscribe(true)}
	unsubscribeSpec = &methodSpec{resolve: resolveResource, mayResolveLater: mayResolveResource, notFound: resourceNotFound, send: subscribe(false)}
)

// resolveNamed finds the tool or the prompt that a name means to this client: what
// it was last shown decides, then what has come since.
func resolveNamed(kind catalog.Kind) func(*clientCall, *catalog.View) (catalog.Route, bool) {
	return func(c *clientCall, v *catalog.View) (catalog.Route, bool) {
		if shown := c.lastListed(kind); shown != nil {
			if route, ok := shown.Lookup(kind, c.Name); ok {
				return route, true
			}
		} else if !v.Settled {
			return catalog.Route{}, false // an earlier backend may yet claim the name
		}
		return v.Lookup(kind, c.Name)
	}
}

// mayResolveNamed says, to a client that has seen a list: only backend__tool of a
// backend that is starting, for any other name would have been in it; to one that
// has not: any name.
func mayResolveNamed(kind catalog.Kind) func(*clientCall, *catalog.View) bool {
	return func(c *clientCall, v *catalog.View) bool {
		return c.lastListed(kind) == nil && !v.Complete || v.MayResolveLater(c.Name)
	}
}

// lastListed returns the catalog by which the client knows what it calls; nil if it has
// seen none, or may have seen any: what has no session is not remembered.
func (c *clientCall) lastListed(kind catalog.Kind) *catalog.Snapshot {
	if c.stateless != nil {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.lists[kind].listed
}

// resolveResource finds the backend that has a resource. Its URI is the same for
// all clients, whatever they have seen. If no list and no template has it, it goes to the backend
// that gave the URI to this client.
func resolveResource(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.lastListed(catalog.Resources) == nil {
		return catalog.Route{}, false // an earlier backend may yet claim it
	}
	if route, ok := v.ResolveResource(c.Name); ok {
		return route, true
	}
	return c.links().route(c.Name)
}

// mayResolveResource says yes while any backend is unknown: it may have templates.
func mayResolveResource(_ *clientCall, v *catalog.View) bool { return !v.Complete }

func unknownName(noun string) func(string) *wire.Error {
	return func(name string) *wire.Error {
		return wire.Errorf(wire.CodeInvalidParams, "Unknown %s: %s", noun, truncate(name))
	}
}

// maxURI bounds a URI that is told back to a client, and the URI of a subscription, in bytes.
const maxURI = 8 << 10

func resourceNotFound(uri string) *wire.Error {
	e := wire.Errorf(protocol.CodeResourceNotFound, "Resource not found")
	if len(uri) > maxURI {
		uri = truncate(uri)
	}
	e.Data = wire.Encode(map[string]string{"uri": uri})
	return e
}

// errURITooLong refuses a subscription to a URI that is too long to be kept.
func errURITooLong() *wire.Error {
	return wire.Errorf(wire.CodeInvalidParams, "Invalid params: the URI of a subscription has at most %d bytes", maxURI)
}

func (c *clientCall) sendNamed() {
	if c.Name != c.Route.Original {
		c.upstream.Name = c.Route.OriginalJSON
	}
	c.sendAsIs()
}

func (c *clientCall) sendAsIs() {
	c.s.g.Backends.Send(c.Route.Backend, c.upstreamMessage(), c.upstream)
}

func subscribe(on bool) func(*clientCall) {
	return func(c *clientCall) {
		c.s.g.Backends.Subscribe(c.Route.Backend, c.Name, on, c.upstreamMessage(), c.upstream)
	}
}

// callByName sends a request on its way that says in params.name what it is for. Guest is
// whose it is if it has no session; so it is in what follows.
func (s *Session) callByName(client *statelessClient, r *peer.Request, spec *methodSpec) {
	s.callByValue(client, r, spec, "name", r.Part(wire.PartName))
}

// callByParam is byName for another member of params.
func (s *Session) callByParam(client *statelessClient, r *peer.Request, spec *methodSpec, member string) {
	value, _ := wire.Lookup(r.Part(wire.PartParams), member)
	s.callByValue(client, r, spec, member, value)
}

func (s *Session) callByValue(client *statelessClient, r *peer.Request, spec *methodSpec, member string, value []byte) {
	if len(value) == 0 || value[0] != '"' {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s needs a %s", r.Method(), member))
		return
	}
	s.startCall(client, r, spec, wire.Unquote(value))
}
