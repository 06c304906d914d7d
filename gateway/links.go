package gateway

import (
	"bytes"
	"sync"

	"mcpgateway/catalog"
	"mcpgateway/internal/wire"
)

// Bounds of the links of one client: beyond maxLinks the oldest is forgotten, and a longer URI is not kept.
const (
	maxLinks   = 256
	maxLinkURI = 1 << 10 // bytes
)

// links are the URIs of resources that a client was given in results, with the backends that gave
// them: in resource links and in embedded resources. Such a resource need not be in a list (MCP
// 2025-11-25, Server Features, Tools, "Resource Links"), and can be read all the same. The zero
// value has none.
type links struct {
	mu       sync.Mutex
	backends map[string]string // by URI
	uris     []string          // its keys; the oldest is at next once there are maxLinks
	next     int
}

// add keeps that a backend gave the URI. The last backend that did so counts.
func (l *links) add(uri, backend string) {
	if uri == "" || len(uri) > maxLinkURI {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.backends == nil {
		l.backends = make(map[string]string)
	}
	_, known := l.backends[uri]
	l.backends[uri] = backend
	switch {
	case known:
	case len(l.uris) < maxLinks:
		l.uris = append(l.uris, uri)
	default:
		delete(l.backends, l.uris[l.next])
		l.uris[l.next] = uri
		l.next = (l.next + 1) % maxLinks
	}
}

// route returns where a URI leads that the client was given.
func (l *links) route(uri string) (catalog.Route, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	backend, ok := l.backends[uri]
	return catalog.Route{Backend: backend, Original: uri}, ok
}

// links returns those of the client that has made the call.
func (c *clientCall) links() *links {
	if c.stateless != nil {
		return &c.stateless.links
	}
	return &c.s.links
}

// recordLinks keeps the links in an answer that the client is about to get.
func (c *clientCall) recordLinks(m wire.Message) {
	result := m.Part(wire.PartResult)
	if !bytes.Contains(result, []byte(`"uri"`)) || !c.s.g.Backends.View().HasCapability(c.Route.Backend, "resources") {
		return
	}
	add := func(uri string) { c.links().add(uri, c.Route.Backend) }
	eachLink(result, add)
	if inner, _ := wire.Lookup(result, "result"); inner != nil { // of a task
		eachLink(inner, add)
	}
}

// eachLink calls f with the URI of each resource in the content of a result of a tool or a prompt.
func eachLink(result []byte, f func(uri string)) {
	block := func(text []byte) bool {
		for _, path := range [][]string{{"uri"}, {"resource", "uri"}} {
			if uri, _ := wire.Lookup(text, path...); uri != nil {
				f(wire.Unquote(uri))
			}
		}
		return true
	}
	content, _ := wire.Lookup(result, "content")
	wire.EachElement(content, block)
	messages, _ := wire.Lookup(result, "messages")
	wire.EachElement(messages, func(message []byte) bool {
		one, _ := wire.Lookup(message, "content")
		block(one)
		wire.EachElement(one, block)
		return true
	})
}
