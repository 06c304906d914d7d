package tracing

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"mcpgateway/internal/audit"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/text"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

const (
	// maxAttribute bounds the texts of clients and backends in a span, in bytes.
	maxAttribute = 256
	// maxMasked is the part of such a text in which secrets are searched, in bytes. It is longer
	// than maxAttribute, so that a secret is not cut in two before it is masked.
	maxMasked = 4096
)

// clean returns text of a client or a backend for a span: masked, shortened, and valid for
// protobuf.
func (t *OTelTracer) clean(s string) string {
	s = strings.ToValidUTF8(text.Truncate(s, maxMasked), "\uFFFD")
	return text.Truncate(t.mask(s), maxAttribute)
}

// spanName returns the name of a span for an entry of the catalog. The URI of a resource is not
// part of it, because there may be any number of URIs.
func (t *OTelTracer) spanName(method, entry string) string {
	switch method {
	case protocol.MethodToolsCall, protocol.MethodPromptsGet:
		return method + " " + t.clean(entry)
	}
	return method
}

// request returns the attributes of every request.
func (t *OTelTracer) request(method string, id wire.ID) []attribute.KeyValue {
	a := append(make([]attribute.KeyValue, 0, 16), attribute.String("mcp.method.name", method))
	switch {
	case id == "" || id == "null":
	case id[0] == '"':
		a = append(a, attribute.String("jsonrpc.request.id", t.clean(wire.Unquote([]byte(id)))))
	default:
		a = append(a, attribute.String("jsonrpc.request.id", t.clean(string(id))))
	}
	return a
}

// target returns the attributes of the entry that a request names.
func (t *OTelTracer) target(method, name string) []attribute.KeyValue {
	if name == "" {
		return nil
	}
	key := ""
	switch method {
	case protocol.MethodToolsCall:
		return []attribute.KeyValue{
			attribute.String("gen_ai.operation.name", "execute_tool"),
			attribute.String("gen_ai.tool.name", t.clean(name)),
		}
	case protocol.MethodPromptsGet, protocol.MethodCompletionComplete:
		key = "gen_ai.prompt.name"
	case protocol.MethodResourcesRead, protocol.MethodResourcesSubscribe,
		protocol.MethodResourcesUnsubscribe:
		key, name = "mcp.resource.uri", audit.BareURI(text.Truncate(name, maxMasked))
	default: // the id of a task is no attribute
		return nil
	}
	return []attribute.KeyValue{attribute.String(key, t.clean(name))}
}

// connection returns the attributes of a connection to a client or a backend.
func (t *OTelTracer) connection(revision string, http bool) []attribute.KeyValue {
	a := make([]attribute.KeyValue, 0, 3)
	if revision != "" {
		a = append(a, attribute.String("mcp.protocol.version", t.clean(revision)))
	}
	if http {
		return append(a, attribute.String("network.transport", "tcp"),
			attribute.String("network.protocol.name", "http"))
	}
	return append(a, attribute.String("network.transport", "pipe"))
}

// server returns the attributes of the server at a URL; "" = none.
func server(at string) (a []attribute.KeyValue) {
	u, err := url.Parse(at)
	if at == "" || err != nil {
		return nil
	}
	port, err := strconv.Atoi(u.Port())
	switch {
	case err == nil:
	case u.Scheme == "https":
		port = 443
	default:
		port = 80
	}
	return []attribute.KeyValue{attribute.String("server.address", u.Hostname()),
		attribute.Int("server.port", port)}
}

// classify returns the error.type of a request that got no response, and the code of the error if
// it has one.
func classify(err error) (kind string, code int) {
	var failure *wire.Error
	var timeout *contract.TimeoutError
	var bad *peer.BadResponseError
	var lost *transport.CallLostError
	switch {
	case errors.As(err, &failure):
		return "_OTHER", failure.Code
	case errors.Is(err, peer.ErrCancelled):
		return "cancelled", 0
	case errors.As(err, &timeout), errors.Is(err, peer.ErrTimeout):
		return "timeout", 0
	case errors.As(err, &bad):
		return "invalid_response", 0
	case errors.As(err, &lost) && !lost.MayHaveRun:
		return "not_run", 0
	}
	return "backend_lost", 0
}
