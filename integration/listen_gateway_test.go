//go:build unix

package integration

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Several subscriptions/listen requests of one client. Each receives what it asked for and
// nothing else, under its own id, until the gateway stops, which ends the request with a result.
// Backends of either generation.
func TestSubscriptionsListen_OverHTTP(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		t.Run("backend "+revision, func(t *testing.T) {
			t.Parallel()
			server := newMatrixGoSDK(t.Context(), notesPath(notesFile(t)), revision)
			site := httptest.NewServer(gosdk.NewStreamableHTTPHandler(
				func(*http.Request) *gosdk.Server { return server },
				&gosdk.StreamableHTTPOptions{Stateless: revision == modernRevision}))
			t.Cleanup(func() {
				site.CloseClientConnections()
				site.Close()
			})
			s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
				backend{Name: "matrix", URL: site.URL + "/mcp"})
			addr := "127.0.0.1:" + freePort(t)
			gw := s.start("serve", "--listen", addr)
			awaitListener(t, addr, gw.exited)
			url := "http://" + addr + "/mcp"
			awaitReady(t, url)

			c := newRawModern(t, url, `{}`)
			tools := c.listen("9007199254740993", `{"toolsListChanged":true}`)
			updates := c.listen(`"l2"`, `{"resourceSubscriptions":["`+matrixResource+`"]}`)
			nothing := c.listen(`3`, `{}`)
			if m := callTool(c, "touch", `{"n":"1"}`); m.Result == nil {
				t.Fatalf("touch: %s", m.Raw)
			}
			if m := callTool(c, "grow", `{"n":"1"}`); m.Result == nil {
				t.Fatalf("grow: %s", m.Raw)
			}
			about := func(m message, id string) bool {
				return strings.Contains(string(m.Raw),
					`"io.modelcontextprotocol/subscriptionId":`+id)
			}
			if m := updates.next(); m.Method != "notifications/resources/updated" ||
				!about(m, `"l2"`) {
				t.Errorf("the request for updates receives %s", m.Raw)
			}
			if m := tools.next(); m.Method != "notifications/tools/list_changed" ||
				!about(m, "9007199254740993") {
				t.Errorf("the request for tools receives %s", m.Raw)
			}

			gw.cmd.Process.Signal(syscall.SIGTERM)
			for id, stream := range map[string]*rawStream{"9007199254740993": tools,
				`"l2"`: updates, "3": nothing} {
				m := stream.next()
				for stream == tools && m.Method == "notifications/tools/list_changed" {
					// The server notifies each of its sessions, so it may come twice.
					m = stream.next()
				}
				if string(m.ID) != id ||
					!strings.Contains(string(m.Result), `"resultType":"complete"`) ||
					!about(m, id) {
					t.Errorf("the request %s ends with %s", id, m.Raw)
				}
			}
			if code := gw.exitCode(20 * time.Second); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
