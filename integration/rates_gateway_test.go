//go:build unix

package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Two tokens, a profile and a backend with rate limits. Sessions and requests without a session
// share the limit of their token. A refusal is an error in a response with status 200, for clients
// of both generations. A reload changes limits without a restart of the backend.
func TestRates_TokensProfilesBackends(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	alice, bob := secret(t, "token of alice"), secret(t, "token of bob")
	config := func(rateOfBob any) map[string]any {
		unnamed := map[string]any{"token": bob}
		if rateOfBob != nil {
			unnamed["rate"] = rateOfBob
		}
		return map[string]any{"tokens": []any{
			map[string]any{"name": "alice", "token": alice, "rate": "4/h"}, unnamed}}
	}
	s := newSetup(t, map[string]any{"auth": config(map[string]any{"limit": "1000/h", "burst": 2}),
		"profiles": map[string]any{"few": map[string]any{"rate": "1/h"}}}, weather("w", "1"))
	gw, url := s.serveHTTP()
	log := gw.logReader()

	const params = `{"name":"w_who","arguments":{}}`
	open := func(token, path string) *rawHTTP {
		c := &rawHTTP{t: t, url: url + path, client: http.Client{Timeout: waitTimeout,
			Transport: bearer{&http.Transport{DisableKeepAlives: true}, token}}}
		if m := c.call("initialize", initializeParams("2025-11-25")); m.Result == nil {
			t.Fatalf("initialize: %s", m.Raw)
		}
		res, err := c.do(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		c.call("tools/list", `{}`)
		return c
	}
	stateless := func(token string) *rawModern {
		c := newRawModern(t, url, `{}`)
		c.header.Set("Authorization", "Bearer "+token)
		return c
	}
	pass := func(m message) {
		t.Helper()
		if m.Result == nil {
			t.Errorf("got %s", m.Raw)
		}
	}
	refused := func(m message, what string) {
		t.Helper()
		for _, part := range []string{`"code":-32603`, "backend w: the rate limit of " + what +
			" is reached: try again in ", "the call did not run", `"retryAfterMs":`} {
			if !strings.Contains(string(m.Raw), part) {
				t.Errorf("got %s, want %s", m.Raw, part)
			}
		}
	}
	first, second, modern := open(alice, ""), open(alice, "/few"), stateless(alice)
	pass(first.call("tools/call", params))
	pass(modern.call("tools/call", params))
	pass(second.call("tools/call", params))
	refused(second.call("tools/call", params), "profile few (1/h)")
	pass(first.call("tools/call", params))
	refused(first.call("tools/call", params), "this token (4/h)")
	res := modern.post(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":`+
		withMeta(params, `{}`)+`}`, headersFor("tools/call", params))
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Retry-After") != "" ||
		!strings.Contains(string(body), "the rate limit of this token (4/h) is reached") {
		t.Errorf("%s: %s", res.Status, body)
	}
	log.await("level=WARN", "rate limit reached", "this token (4/h)", "principal=alice")

	other := stateless(bob)
	pass(other.call("tools/call", params))
	pass(other.call("tools/call", params))
	refused(other.call("tools/call", params), "this token (1000/h)")

	s.editConfig(func(doc map[string]any) {
		doc["auth"] = config(nil)
		backendEntry(doc, "w")["rate"] = "2/h"
	})
	if line := log.await(logReloaded); strings.Contains(line, "restarted") {
		t.Errorf("the reload restarted the backend: %s", line)
	}
	pass(other.call("tools/call", params))
	pass(other.call("tools/call", params))
	refused(other.call("tools/call", params), "this backend (2/h)")
	refused(first.call("tools/call", params), "this backend (2/h)") // waits longer than the token

	s.editConfig(func(doc map[string]any) {
		delete(backendEntry(doc, "w"), "rate")
		delete(doc, "profiles")
		doc["auth"] = map[string]any{"tokens": []any{
			map[string]any{"name": "alice", "token": alice}, map[string]any{"token": bob}}}
	})
	log.await(logReloaded)
	for range 20 {
		pass(other.call("tools/call", params))
		pass(first.call("tools/call", params))
	}
	rejected := 0
	for _, r := range s.records() {
		if strings.Contains(r.line, `"outcome":"rejected"`) &&
			strings.Contains(r.line, "the rate limit of ") {
			rejected++
		}
	}
	if rejected != 6 {
		t.Errorf("%d audit records of refused calls, want 6", rejected)
	}
}
