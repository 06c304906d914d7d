package mcptest

import (
	"fmt"
	"io"
	"net/http"

	"mcpgateway/internal/wire"
)

// maxUnsent bounds what waits for a client that does not read its listen; one that has
// more is hung up on.
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
		return // the client is gone, or says too much
	}
	m, err := wire.Parse(body)
	switch {
	case err != nil || m.Kind() != wire.Request && m.Kind() != wire.Notification:
		writeHTTPResponse(w, wire.NewErrorResponse(m.ID(), wire.Errorf(wire.CodeInvalidRequest, "Invalid request")))
		return
	case m.Kind() == wire.Notification:
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if _, err := parseParams(m); err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(wire.NewErrorResponse(m.ID(), err).Raw()) // who is gone reads nothing
		return
	}
	said := make(chan wire.Message, maxUnsent)
	l := s.handle(m, func(p *taskParams) *wire.Error { return checkHeaders(r.Header, m, p) }, func(m wire.Message) bool {
		select {
		case said <- m:
			return true
		default:
			close(said) // it is told no more
			return false
		}
	})
	if l != nil {
		defer s.removeListener(l)
		writeStream(w, r, said)
		return
	}
	select {
	case m := <-said:
		writeHTTPResponse(w, m)
	case <-r.Context().Done():
	}
}

// checkHeaders says what is wrong with the headers that repeat what stands in the body.
func checkHeaders(h http.Header, m wire.Message, p *taskParams) *wire.Error {
	want := map[string]string{"MCP-Protocol-Version": p.Meta.Version, "Mcp-Method": m.Method()}
	if nameParams[m.Method()] != "" {
		want["Mcp-Name"] = p.Name + p.TaskID // the one or the other
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
	_, _ = w.Write(m.Raw()) // who is gone reads nothing
}

// writeStream sends all that is said to a listen, until its result or until the client goes.
func writeStream(w http.ResponseWriter, r *http.Request, said <-chan wire.Message) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		select {
		case m, ok := <-said:
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
