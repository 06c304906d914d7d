package config

import (
	"net/url"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"
)

// reservedHeader says why a header cannot be configured.
const reservedHeader = "belongs to the protocol or to HTTP itself: the gateway sets it for each request"

// reserved are the headers of HTTP that a backend's requests get from the gateway. All that begin
// with Mcp- are those of MCP.
var reserved = []string{
	"accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect",
	"keep-alive", "last-event-id", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "via",
}

// IsReservedHeader tells whether a header is the gateway's own to set.
func IsReservedHeader(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "mcp-") || slices.Contains(reserved, name)
}

// isHostHeader tells whether a value may stand in the header Host.
func isHostHeader(value string) bool {
	u, err := url.Parse("http://" + value)
	return err == nil && u.Hostname() != "" && u.Host == value
}

// dropReserved returns a mapping of headers without those that are reserved, and the names of
// these. Files of other clients have them; there they mean nothing more than here.
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

// clientTLS checks what a backend says of TLS, without a look at the files.
func (c *checker) clientTLS(b *Backend, at string) {
	const hint = "name both files, or none"
	switch t := b.TLS; {
	case t == ClientTLS{}:
	case strings.HasPrefix(strings.ToLower(b.URL), "http://"):
		c.fail(at, "belongs to a url with https", "")
	case t.Cert != "" && t.Key == "":
		c.fail(at+".cert", "is of no use without key", hint)
	case t.Key != "" && t.Cert == "":
		c.fail(at+".key", "is of no use without cert", hint)
	}
}
