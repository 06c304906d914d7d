//go:build unix

package backends

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// FRAME-08, FRAME-09: when a backend stops reading, its calls time out, it is killed and
// started again, other backends are not affected, and the gateway ends quickly.
func TestFRAME08_FRAME09_BackendThatStopsReadingIsRestarted(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	stalled := scriptBackend(
		`printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}\n'; test -e "$MARK" || { : > "$MARK"; trap '' TERM; exec sleep 60; }`)
	stalled.Name, stalled.CallTimeout = "deaf", 500*time.Millisecond
	stalled.Env = map[string]string{"MARK": filepath.Join(t.TempDir(), "mark")}
	var log lockedBuffer
	s, end := runAll(t, &log, stalled, config.Backend{Name: "good", Embedded: "demo",
		Enabled: true})
	began := time.Now()
	var calls []ResponseChan
	for range 3 {
		calls = append(calls, sendSized(s, "deaf", 1<<20))
	}
	for range 100 {
		if a := <-sendSized(s, "good", 10); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for i, c := range calls {
		a := <-c
		if took := time.Since(began); !isA[*contract.TimeoutError](a.Err) || took > 3*time.Second {
			t.Errorf("call %d ended after %v with %v", i, took, a.Err)
		}
	}
	// this call also fails; or the restarted server reads it and does not respond
	late := <-sendSized(s, "deaf", 10)
	if late.Err == nil {
		t.Error("the call got a response")
	}
	up := time.Now()
	for s.Status()[0].State != Ready || !strings.Contains(log.String(), "it does not read") {
		if time.Since(up) > 20*time.Second {
			t.Fatalf("the backend is %v; logged\n%s", s.Status()[0], log.String())
		}
		<-sendSized(s, "good", 10)
	}
	up = time.Now()
	end()
	if took := time.Since(up); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
}

// The stderr of a backend that floods it is read completely, and logged at a limited rate.
func TestStderrFloodIsReadAndLimited(t *testing.T) {
	flood := scriptBackend(
		`yes "$(printf '%0100d')" | head -n 100000 >&2; printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}\n'`)
	var log lockedBuffer
	s, end := runAll(t, &log, flood)
	defer end()
	if st := s.Status()[0]; st.Counts[0] != 1 {
		t.Errorf("status: %+v", st)
	}
	if n := strings.Count(log.String(), "stderr: "); n < 500 || n > 5000 {
		t.Errorf("%d lines are logged", n)
	}
}

// FRAME-08: a server behind a URL that accepts connections and never reads affects only its own
// calls, which time out, or are refused if too many messages are under way.
func TestFRAME08_ServerThatNeverReads(t *testing.T) {
	t.Parallel()
	greeted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
		m, _ := wire.Parse(body)
		w.Header().Set("Content-Type", "application/json")
		switch m.Method() {
		case "initialize":
			_, _ = w.Write(wire.NewResult(m.ID(),
				[]byte(
					`{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)).Raw())
		case "tools/list":
			_, _ = w.Write(wire.NewResult(m.ID(), []byte(`{"tools":[]}`)).Raw())
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				// the server keeps the connection, and reads no more of the message
				t.Cleanup(func() { conn.Close() })
				_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
			}
		}
	})
	server := httptest.NewServer(greeted)
	defer server.Close()
	stalled := config.Backend{Name: "deaf", URL: server.URL, Enabled: true, Generation: "legacy",
		StartTimeout: time.Minute, CallTimeout: time.Second, Sharing: "shared"}
	s, end := runAll(t, io.Discard, stalled, config.Backend{Name: "good", Embedded: "demo",
		Enabled: true})
	began := time.Now()
	var calls []ResponseChan
	for range 20 { // 80 MiB: more than may be in flight
		calls = append(calls, sendSized(s, "deaf", 4<<20))
	}
	for range 100 {
		if a := <-sendSized(s, "good", 10); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	timeouts, refused := 0, 0
	for _, c := range calls {
		switch a := <-c; {
		case isA[*contract.TimeoutError](a.Err):
			timeouts++
		case a.Err != nil && strings.Contains(a.Err.Error(), "too many messages are under way"):
			refused++
		default:
			t.Errorf("ended with %v, %s", a.Err, a.Message.Raw())
		}
	}
	if took := time.Since(began); timeouts < 10 || refused == 0 || took > 30*time.Second {
		t.Errorf("%d timed out, %d were refused, after %v", timeouts, refused, took)
	}
	began = time.Now()
	end()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
}
