//go:build unix

package integration

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Two named clients call the tools of one server, which has a process for each of them. Each audit
// record and each line of the log about a session has the name of the session's client. When a
// token expires, its session and its open stream end, and the error says why.
func TestPrincipals_NamesAndExpiry(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	alice, bob := secret(t, "token of alice"), secret(t, "token of bob")
	tokens := func(bobExpires string) map[string]any {
		b := map[string]any{"name": "bob", "token": bob}
		if bobExpires != "" {
			b["expires"] = bobExpires
		}
		return map[string]any{"tokens": []any{map[string]any{"name": "alice", "token": alice}, b}}
	}
	b := helperBackend("mirror", "mirror", notesFile(t))
	b.Sharing = "session"
	s := newSetup(t, map[string]any{"auth": tokens("")}, b)
	gw, url := s.serveHTTP()
	log := gw.logReader()
	sessions := map[string]string{} // session id → name
	connect := func(token, name string) *streamClient {
		v, err := dialStreams(t.Context(),
			&http.Client{Transport: bearer{&http.Transport{DisableKeepAlives: true}, token}}, url,
			`{}`, func(string, message) {})
		if err == nil {
			err = v.post("1", `{"jsonrpc":"2.0","id":1,"method":"tools/call",`+
				`"params":{"name":"request","arguments":{}}}`)
		}
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(v.session, "-")
		sessions[id] = name
		return v
	}
	connect(alice, "alice")
	other := connect(bob, "bob")
	if err := other.openStandalone(); err != nil {
		t.Fatal(err)
	}

	expires := time.Now().Add(3 * time.Second).UTC().Truncate(time.Second).Add(time.Second)
	s.editConfig(func(doc map[string]any) { doc["auth"] = tokens(expires.Format(time.RFC3339)) })
	log.await(logReloaded)
	other.streams.Wait() // the gateway ends the stream
	if time.Now().Before(expires) {
		t.Error("the stream ended before the token expired")
	}
	if err := other.post("2", `{"jsonrpc":"2.0","id":2,"method":"ping"}`); err == nil ||
		!strings.Contains(err.Error(), "401") {
		t.Errorf("with the expired token: %v", err)
	}
	log.await("level=INFO", "closed sessions and requests of expired tokens")
	log.await("level=WARN", "request rejected", "the token bob expired at "+
		expires.Format(time.RFC3339))

	names := map[string]int{}
	for _, r := range s.records() {
		if !strings.Contains(r.line, `"principal":"`+sessions[r.Session]+`"`) {
			t.Errorf("no name in %s", r.line)
		}
		names[sessions[r.Session]]++
	}
	if names["alice"] != 1 || names["bob"] != 1 {
		t.Errorf("audit records: %v", names)
	}
	text, err := os.ReadFile(gw.stderr)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(text)) {
		_, rest, ok := strings.Cut(line, " session=")
		if id, _, _ := strings.Cut(rest, " "); ok {
			lines++
			if want := sessions[strings.TrimSpace(id)]; !strings.Contains(line, "principal="+want) {
				t.Errorf("no principal=%s in %s", want, line)
			}
		}
	}
	if lines < 6 {
		t.Errorf("only %d lines about sessions", lines)
	}
}
