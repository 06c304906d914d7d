package mcptest

import (
	"fmt"
	"io"
	"net/http"

	"mcpgateway/internal/wire"
)

// maxUnsent is the maximum number of unsent messages of a listener. If there are more, its client
// is disconnected.
const maxUnsent = 64

// ServeHTTP implements http.Handler, for any path.
func (s *TaskServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return // the client has disconnected, or the body is too long
	}
	m, err := wire.Parse(body)
	switch {
	case err != nil || m.Kind() != wire.Request && m.Kind() != wire.Notification:
		writeHTTPResponse(w, wire.NewErrorResponse(m.ID(),
			wire.Errorf(wire.CodeInvalidRequest, "Invalid request")))
		return
	case m.Kind() == wire.Notification:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if _, err := parseParams(m); err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		// A client that has disconnected is not an error.
		_, _ = w.Write(wire.NewErrorResponse(m.ID(), err).Raw())
		return
	}
	messages := make(chan wire.Message, maxUnsent)
	reject := func(p *taskParams) *wire.Error { return checkHeaders(r.Header, m, p) }
	l := s.handle(m, reject, func(m wire.Message) bool {
		select {
		case messages <- m:
			return true
		default:
			close(messages) // ends the stream
			return false
		}
	})
	if l != nil {
		defer s.removeListener(l)
		writeStream(w, r, messages)
		return
	}
	select {
	case m := <-messages:
		writeHTTPResponse(w, m)
	case <-r.Context().Done():
	}
}

// checkHeaders checks the headers that repeat members of the body.
func checkHeaders(h http.Header, m wire.Message, p *taskParams) *wire.Error {
	want := map[string]string{"MCP-Protocol-Version": p.Meta.Version, "Mcp-Method": m.Method()}
	if nameParams[m.Method()] != "" {
		want["Mcp-Name"] = p.Name + p.TaskID // one of the two is empty
	}
	for name, value := range want {
		if got := h.Get(name); got != value {
			return wire.Errorf(-32020, "Header mismatch: %s is %q and not %q", name, got, value)
		}
	}
	return nil
}

func writeHTTPResponse(w http.ResponseWriter, m wire.Message) {
	w.Header().Set("Content-Type", "application/json")
	switch e := wire.ReadError(m.Part(wire.PartError)); {
	case e.Code == wire.CodeMethodNotFound:
		w.WriteHeader(http.StatusNotFound)
	case e.Code <= -32020 && e.Code >= -32099, e.Code == wire.CodeInvalidRequest:
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = w.Write(m.Raw()) // a disconnected client is not an error
}

// writeStream sends the messages to a listener, until the result of its request is sent or the
// client disconnects.
func writeStream(w http.ResponseWriter, r *http.Request, messages <-chan wire.Message) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", m.Raw())
			if http.NewResponseController(w).Flush() != nil || m.Kind() == wire.Response {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
