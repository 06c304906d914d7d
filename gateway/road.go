package gateway

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A road is how the requests of a method come to the backend that they are for. A
// road is a value without state: all sessions share it.
type road struct {
	// find returns where that is which a call names.
	find func(c *call, v *catalog.View) (catalog.Route, bool)
	// mayCome reports whether a name that nobody has may yet be somebody's, so that
	// it is worth waiting for backends that are starting.
	mayCome func(c *call, v *catalog.View) bool
	// unknown answers for a name that nobody has.
	unknown func(name string) *wire.Error
	// send sends the request. The backend has its own word for the name.
	send func(c *call)
	// rounds says that the answer may be that input is needed, in the stateless era: it
	// is what a server asks for there.
	rounds bool
}

var (
	toTool = &road{
		find: findNamed(catalog.Tools), mayCome: mayComeNamed(catalog.Tools),
		unknown: nobodyHas("tool"), send: (*call).sendNamed, rounds: true,
	}
	toPrompt = &road{
		find: findNamed(catalog.Prompts), mayCome: mayComeNamed(catalog.Prompts),
		unknown: nobodyHas("prompt"), send: (*call).sendNamed, rounds: true,
	}
	toResource = &road{
		find: findResource, mayCome: mayComeResource,
		unknown: noResource, send: (*call).sendAsIs, rounds: true,
	}
	toSubscribe   = &road{find: findResource, mayCome: mayComeResource, unknown: noResource, send: subscribe(true)}
	toUnsubscribe = &road{find: findResource, mayCome: mayComeResource, unknown: noResource, send: subscribe(false)}
)

// findNamed finds the tool or the prompt that a name means to this client: what
// it was last shown decides, then what has come since.
func findNamed(kind catalog.Kind) func(*call, *catalog.View) (catalog.Route, bool) {
	return func(c *call, v *catalog.View) (catalog.Route, bool) {
		if shown := c.shown(kind); shown != nil {
			if route, ok := shown.Lookup(kind, c.Name); ok {
				return route, true
			}
		} else if !v.Settled {
			return catalog.Route{}, false // an earlier backend may yet claim the name
		}
		return v.Lookup(kind, c.Name)
	}
}

// mayComeNamed says, to a client that has seen a list: only backend__tool of a
// backend that is starting, for any other name would have been in it; to one that
// has not: any name.
func mayComeNamed(kind catalog.Kind) func(*call, *catalog.View) bool {
	return func(c *call, v *catalog.View) bool {
		return c.shown(kind) == nil && !v.Complete || v.MayResolveLater(c.Name)
	}
}

// shown returns the catalog by which the client knows what it calls; nil if it has
// seen none, or may have seen any: what has no session is not remembered.
func (c *call) shown(kind catalog.Kind) *catalog.Snapshot {
	if c.guest != nil {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.seen[kind].shown
}

// findResource finds the backend that has a resource. Its URI is the same for
// all clients, whatever they have seen. If no list and no template has it, it goes to the backend
// that gave the URI to this client.
func findResource(c *call, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.shown(catalog.Resources) == nil {
		return catalog.Route{}, false // an earlier backend may yet claim it
	}
	if route, ok := v.ResolveResource(c.Name); ok {
		return route, true
	}
	return c.links().route(c.Name)
}

// mayComeResource says yes while any backend is unknown: it may have templates.
func mayComeResource(_ *call, v *catalog.View) bool { return !v.Complete }

func nobodyHas(noun string) func(string) *wire.Error {
	return func(name string) *wire.Error {
		return wire.Errorf(wire.CodeInvalidParams, "Unknown %s: %s", noun, brief(name))
	}
}

// maxURI bounds a URI that is told back to a client, and the URI of a subscription, in bytes.
const maxURI = 8 << 10

func noResource(uri string) *wire.Error {
	e := wire.Errorf(protocol.CodeResourceNotFound, "Resource not found")
	if len(uri) > maxURI {
		uri = brief(uri)
	}
	e.Data = wire.Encode(map[string]string{"uri": uri})
	return e
}

// longURI refuses a subscription to a URI that is too long to be kept.
func longURI() *wire.Error {
	return wire.Errorf(wire.CodeInvalidParams, "Invalid params: the URI of a subscription has at most %d bytes", maxURI)
}

func (c *call) sendNamed() {
	if c.Name != c.Route.Original {
		c.pending.Name = c.Route.OriginalJSON
	}
	c.sendAsIs()
}

func (c *call) sendAsIs() { c.s.g.Backends.Send(c.Route.Backend, c.message(), c.pending) }

func subscribe(on bool) func(*call) {
	return func(c *call) {
		c.s.g.Backends.Subscribe(c.Route.Backend, c.Name, on, c.message(), c.pending)
	}
}

// byName sends a request on its way that says in params.name what it is for. Guest is
// whose it is if it has no session; so it is in what follows.
func (s *Session) byName(guest *guest, r *peer.Request, to *road) {
	s.by(guest, r, to, "name", r.Part(wire.PartName))
}

// byParam is byName for another member of params.
func (s *Session) byParam(guest *guest, r *peer.Request, to *road, member string) {
	value, _ := wire.Lookup(r.Part(wire.PartParams), member)
	s.by(guest, r, to, member, value)
}

func (s *Session) by(guest *guest, r *peer.Request, to *road, member string, value []byte) {
	if len(value) == 0 || value[0] != '"' {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s needs a %s", r.Method(), member))
		return
	}
	s.call(guest, r, to, wire.Unquote(value))
}
