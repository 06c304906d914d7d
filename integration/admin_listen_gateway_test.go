//go:build unix

package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
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

// The responses of a running gateway have the form that its OpenAPI document describes, and contain
// no secret.
func TestAdminListen_ResponsesMatchOpenAPI(t *testing.T) {
	t.Parallel()
	secret := registerSecret(t, "env", "hunter2hunter2-admin")
	s := newSetup(t, map[string]any{
		"admin":    map[string]any{"listen": "127.0.0.1:" + freePort(t)},
		"profiles": map[string]any{"web": map[string]any{"backends": []string{"demo"}}},
	}, backend{Name: "demo", Embedded: "demo"},
		backend{Name: "broken", Command: "sh",
			Args: []string{"-c", `echo "the key is $API_KEY" >&2; exit 1`},
			Env:  map[string]string{"API_KEY": secret}})
	gw := s.start("--profile", "web")
	gw.initialize("2025-11-25")
	listTools(t, gw)
	callTool(gw, "echo", `{"text":"`+secret+`"}`)
	callTool(gw, "unknown", `{"text":"`+secret+`"}`)
	var url string
	all := s.awaitStatus("settled", func(all []statusReport) bool {
		return len(all) == 1 && all[0].Gateway.Admin != "" && all[0].Backends[1].Reason != ""
	})
	url = all[0].Gateway.Admin
	token, err := os.ReadFile(filepath.Join(s.dir, "state", "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	request := func(method, path string) []byte {
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s %s: %s %v %s", method, path, resp.Status, err, body)
		}
		searchText(t, "the response of "+path, body)
		return body
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
		Components struct{ Schemas map[string]*jsonschema.Schema }
	}
	if err := json.Unmarshal(request("GET", "/api/v1/openapi.json"), &doc); err != nil {
		t.Fatal(err)
	}
	var calls struct{ Recent []struct{ Call string } }
	if err := json.Unmarshal(request("GET", "/api/v1/calls"), &calls); err != nil ||
		len(calls.Recent) != 2 {
		t.Fatalf("%+v %v", calls, err)
	}
	checked := 0
	for path, methods := range doc.Paths {
		for method, operation := range methods {
			ref := operation.Responses["200"].Content["application/json"].Schema.Ref
			if ref == "" {
				continue // this document, or a stream
			}
			name := ref[strings.LastIndexByte(ref, '/')+1:]
			schema, err := doc.Components.Schemas[name].Resolve(nil)
			if err != nil {
				t.Fatal(err)
			}
			path := strings.NewReplacer("{name}", "demo", "{id}", calls.Recent[0].Call).
				Replace(path)
			var value any
			if err := json.Unmarshal(request(strings.ToUpper(method), path), &value); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if err := schema.Validate(value); err != nil {
				t.Errorf("%s %s: %v", method, path, err)
			}
			checked++
		}
	}
	if checked < 10 {
		t.Errorf("only %d operations were checked", checked)
	}
}
