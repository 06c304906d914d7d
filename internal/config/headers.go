package config

import (
	"net/url"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"
)

// reservedHeader is the error for a header that cannot be configured.
const reservedHeader = "belongs to the protocol or to HTTP itself: the gateway sets it for each request"

// reserved are the HTTP headers that the gateway sets itself in requests to backends. All headers
// that begin with Mcp- are reserved too.
var reserved = []string{
	"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type",
	"expect",
	"keep-alive", "last-event-id", "proxy-connection", "te", "trailer", "transfer-encoding",
	"upgrade", "via",
}

// IsReservedHeader reports whether only the gateway may set a header.
func IsReservedHeader(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "mcp-") || slices.Contains(reserved, name)
}

// isHostHeader reports whether value is valid in the Host header.
func isHostHeader(value string) bool {
	u, err := url.Parse("http://" + value)
	return err == nil && u.Hostname() != "" && u.Host == value
}

// dropReserved returns a mapping of headers without the reserved ones, and the names of these.
// Files of other clients may contain them without effect.
func dropReserved(headers *yaml.Node) (kept *yaml.Node, dropped []string) {
	if headers.Kind != yaml.MappingNode {
		return headers, nil
	}
	copied := *headers
	copied.Content = nil
	for i := 0; i+1 < len(headers.Content); i += 2 {
		if name := headers.Content[i].Value; IsReservedHeader(name) {
			dropped = append(dropped, "headers."+node.ShowKey(name))
		} else {
			copied.Content = append(copied.Content, headers.Content[i], headers.Content[i+1])
		}
	}
	return &copied, dropped
}

// clientTLS checks the TLS settings of a backend. It does not open the files.
func (c *checker) clientTLS(b *Backend, at string) {
	const hint = "name both files, or none"
	switch t := b.TLS; {
	case t == ClientTLS{}:
	case strings.HasPrefix(strings.ToLower(b.URL), "http://"):
		c.fail(at, "requires a url with https", "")
	case t.Cert != "" && t.Key == "":
		c.fail(at+".cert", "requires key", hint)
	case t.Key != "" && t.Cert == "":
		c.fail(at+".key", "requires cert", hint)
	}
}
