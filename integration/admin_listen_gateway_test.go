//go:build unix

package integration

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// admin.listen serves the admin API with a token of its own, which only the user can read and which
// no log contains.
func TestAdminListen_NeedsItsToken(t *testing.T) {
	t.Parallel()
	const mcpToken = "0123456789abcdef-mcp"
	s := newSetup(t, map[string]any{
		"admin": map[string]any{"listen": "127.0.0.1:0"},
		"auth":  map[string]any{"tokens": []string{mcpToken}},
	}, backend{Name: "demo", Embedded: "demo"})
	gw, _ := s.serveHTTP()
	var url string
	if !poll(waitTimeout, func() bool {
		for _, line := range strings.Fields(gw.logs()) {
			if strings.HasPrefix(line, "http://127.0.0.1:") && strings.HasSuffix(line, `"`) &&
				!strings.Contains(line, "/mcp") {
				url = strings.TrimSuffix(line, `"`)
			}
		}
		return url != ""
	}) {
		t.Fatal("no URL in the log")
	}
	file := filepath.Join(s.dir, "state", "admin-token")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text)) // not registered: it is in its file
	for _, test := range []struct {
		token, host string
		want        int
	}{
		{"", "", 401}, {mcpToken, "", 401}, {token, "", 200}, {token, "evil.example", 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/api/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+test.token)
		req.Host = test.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != test.want ||
			(test.want == 200) != strings.Contains(string(body), `"state":"ready"`) {
			t.Errorf("%+v: %s %s", test, resp.Status, body)
		}
	}
	s.run("status").expect(t, 0, "admin", url)
	if logs := gw.logs(); strings.Contains(logs, token) ||
		!strings.Contains(logs, "the token: cat "+file) {
		t.Error("the log has the token, or not the file of the token")
	}
	// the admin token is none of MCP
	if resp, err := http.Post(s.status()[0].Gateway.URL, "application/json",
		strings.NewReader("{}")); err != nil || resp.StatusCode != 401 {
		t.Errorf("%v %v", resp, err)
	}
}

// A second gateway with the same configuration, as clients start it, runs without the address.
func TestAdminListen_AddressInUse(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{
		"admin": map[string]any{"listen": "127.0.0.1:" + freePort(t)},
	}, backend{Name: "demo", Embedded: "demo"})
	first := s.start()
	first.initialize("2025-11-25")
	if !poll(waitTimeout, func() bool { return strings.Contains(first.logs(), "admin API at") }) {
		t.Fatal("the admin API is not served")
	}
	second := s.start()
	second.initialize("2025-11-25")
	if !poll(waitTimeout, func() bool {
		return strings.Contains(second.logs(), "admin.listen is in use")
	}) {
		t.Error("the second gateway does not log that the address is in use")
	}
	if m := callTool(second, "echo", `{"text":"x"}`); m.Error != nil {
		t.Errorf("%s", m.Raw)
	}
}
