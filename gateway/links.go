package gateway

import (
	"bytes"
	"sync"

	"mcpgateway/catalog"
	"mcpgateway/internal/wire"
)

// Limits of the links of one client. At maxLinks the oldest link is removed. A URI longer than
// maxLinkURI is not stored.
const (
	maxLinks   = 256
	maxLinkURI = 1 << 10 // bytes
)

// links maps the URIs of resource links and embedded resources in a client's results to the
// backends that returned them. The client may read such a resource even if no list contains it
// (MCP 2025-11-25, Server Features, Tools, "Resource Links"). The zero value is empty.
type links struct {
	mu       sync.Mutex
	backends map[string]string // by URI
	uris     []string          // keys of backends; when full, a ring with the oldest at next
	next     int
}

// add records that a backend returned the URI. The latest backend of a URI replaces earlier ones.
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

// route returns the route of a recorded URI.
func (l *links) route(uri string) (catalog.Route, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	backend, ok := l.backends[uri]
	return catalog.Route{Backend: backend, Original: uri}, ok
}

// recordLinks records the links in a response to the client, if the backend has resources.
func (c *clientCall) recordLinks(m wire.Message) {
	result := m.Part(wire.PartResult)
	hasResources := func() bool {
		return c.conn.view().HasCapability(c.Route.Backend, "resources")
	}
	switch long := len(result) > 4<<10; { // the search of a long result takes longer
	case long && !hasResources(),
		!bytes.Contains(result, []byte(`"uri"`)),
		!long && !hasResources():
		return
	}
	add := func(uri string) { c.links.add(uri, c.Route.Backend) }
	eachLink(result, add)
	if inner, _ := wire.Lookup(result, "result"); inner != nil { // result of an ended task
		eachLink(inner, add)
	}
}

// eachLink calls f with the URI of each resource in the content of a tool or prompt result.
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
