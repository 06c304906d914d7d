package backends

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// The incomplete large responses of a server occupy no more than its quota; responses beyond the
// quota fail at once. Calls of another backend are not affected.
func TestStalledResponses_F_SEC_9(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := wire.Parse(body)
		w.Header().Set("Content-Type", "application/json")
		switch m.Method() {
		case "initialize":
			_, _ = w.Write(wire.NewResult(m.ID(),
				[]byte(
					`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)).Raw())
		case "tools/list":
			_, _ = w.Write(wire.NewResult(m.ID(), []byte(`{"tools":[]}`)).Raw())
		case "tools/call":
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","result":{"a":"`+strings.Repeat("x", 3<<20))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}))
	defer server.Close()
	stalls := config.Backend{Name: "stalls", URL: server.URL, Enabled: true, Generation: "legacy",
		StartTimeout: time.Minute, CallTimeout: time.Hour, Sharing: "shared"}
	s, end := runAll(t, io.Discard, stalls, config.Backend{Name: "good", Embedded: "demo",
		Enabled: true})
	const all, fit = 40, 5 // calls, and the number of 3 MiB responses that fit into the quota
	ended := make(chan contract.BackendResponse, all)
	for range all {
		call := sendSized(s, "stalls", 10)
		go func() { ended <- <-call }()
	}
	for range all - fit {
		a := <-ended
		if a.Err == nil || !strings.Contains(a.Err.Error(),
			"incomplete messages from this backend may have at most 16777216 bytes together") {
			t.Errorf("ended with %v, %s", a.Err, a.Message.Raw())
		}
		if held := s.receiveQuota.InUse(); held > 16<<20 {
			t.Errorf("%d bytes are held", held)
		}
		if a := <-sendSized(s, "good", 10); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	end() // the other responses stall until then
}
