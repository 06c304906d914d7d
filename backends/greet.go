package backends

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/peer"
	"mcpgateway/revision"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A server is what a backend said of itself in the handshake.
type server struct {
	ProtocolVersion string          `json:"protocolVersion"`
	ServerInfo      json.RawMessage `json:"serverInfo"`
	Instructions    json.RawMessage `json:"instructions"`
}

// name returns the server's name/version, as far as it has told them: only the
// revision has to be right.
func (s server) name() string {
	var info struct{ Name, Version json.RawMessage }
	_ = json.Unmarshal(s.ServerInfo, &info)
	return wire.Unquote(info.Name) + "/" + wire.Unquote(info.Version)
}

func (s server) instructions() string { return wire.Unquote(s.Instructions) }

// greet initializes the conversation: our newest revision is offered, any that
// we know is taken. No capabilities are declared, for nothing is relayed yet that a
// server could ask a client for.
func (b *Backend) greet(ctx context.Context, p *peer.Peer) (server, error) {
	result, err := p.Call(ctx, string(mcp.MethodInitialize), wire.Encode(map[string]any{
		"protocolVersion": revision.Newest().Date,
		"capabilities":    struct{}{},
		"clientInfo":      b.set.Info,
	}))
	if err != nil {
		return server{}, fmt.Errorf("initialize: %w", err)
	}
	var s server
	if err := json.Unmarshal(result, &s); err != nil {
		return server{}, errors.New("initialize: its answer is no InitializeResult")
	}
	if _, known := revision.Find(s.ProtocolVersion); !known {
		b.log.Warn("backend speaks a revision that is not known; going on all the same",
			"revision", s.ProtocolVersion)
	}
	if err := p.Notify(string(mcp.MethodNotificationInitialized), nil); err != nil {
		return server{}, fmt.Errorf("initialized: %w", err)
	}
	b.mu.Lock()
	b.status.Server = s.name()
	b.status.Revision = s.ProtocolVersion
	b.mu.Unlock()
	b.log.Info("backend ready", "server", s.name(), "revision", s.ProtocolVersion)
	return s, nil
}

// maxQuestions bounds what a backend may ask of us at one time.
const maxQuestions = 256

// A handler hears what a backend says unasked.
type handler struct {
	b     *Backend
	noise string // how the first output began that was no message; the reader's own
}

// Asked implements peer.Handler. A backend was told that we can do nothing, so
// that there is nothing it should ask.
func (h *handler) Asked(r *peer.Request) {
	h.b.log.Debug("refused a question of the backend", "method", r.Method())
	r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
}

// Told implements peer.Handler. What is not known is dropped.
func (h *handler) Told(m wire.Message, _ *peer.Pending) {
	switch m.Method() {
	case mcp.MethodNotificationToolsListChanged:
		select {
		case h.b.relist <- struct{}{}:
		default: // one look at the list serves any number of changes
		}
	case string(mcp.MethodNotificationMessage):
		h.b.log.Debug("backend says", "params", string(m.Part(wire.PartParams)))
	default:
		h.b.log.Debug("dropped a notification", "method", m.Method())
	}
}

// cut returns the first n bytes of a text, or somewhat less.
func cut(text string, n int) string {
	return strings.ToValidUTF8(text[:min(len(text), n)], "")
}

// heard says, once, that there is something on the backend's stdout that should
// not be there.
func (h *handler) heard(n *transport.Noise) {
	text := h.b.set.Mask(string(n.Text))
	say := h.b.log.Debug
	if h.noise == "" {
		say = h.b.log.Warn
		h.noise = cut(text, 80)
	}
	say("skipped output that is no message", "text", cut(text, 200), "err", n.Err)
}
