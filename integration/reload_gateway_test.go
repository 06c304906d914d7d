//go:build unix

package integration

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// 100 reloads, each of which changes a backend, while clients make calls all the time: no call
// is lost, no session ends, unchanged backends are not affected, and a client never reaches an
// older version after a newer one.
func TestReload_UnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	const reloads, clients = 100, 6
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"),
		weather("calm", "1"), weather("wind", "0"))
	gw, url := s.serveHTTP()
	log := gw.logReader()
	client := dialHTTP(t, url, "2025-11-25")
	poll(waitTimeout, func() bool { return len(listTools(t, client)) == 6 })
	c := startLoad(t, url, clients, "still", "calm", "wind")
	began := time.Now()
	changedLists := 0
	for i := 1; i <= reloads; i++ {
		var changesBefore []int64
		for k := range c.changes {
			changesBefore = append(changesBefore, c.changes[k].Load())
		}
		s.editConfig(func(doc map[string]any) {
			env := backendEntry(doc, "wind")["env"].(map[string]any)
			env["WEATHER_VERSION"] = strconv.Itoa(i)
			env["WEATHER_TOOL"] = fmt.Sprintf("gust_%d", i/10)
		})
		if i%2 == 0 {
			gw.cmd.Process.Signal(syscall.SIGHUP)
		}
		if line := log.await(logReloaded); !strings.Contains(line, "kept=2") ||
			!strings.Contains(line, `changed="wind (env.`) {
			t.Errorf("reload %d: %s", i, line)
		}
		if m := callTool(client, "wind_who", `{}`); !strings.Contains(string(m.Result),
			fmt.Sprintf(`"wind %d `, i)) {
			t.Errorf("after reload %d: %s", i, m.Raw)
		}
		if i%10 != 0 {
			continue
		}
		changedLists++
		if !slices.Contains(names(listTools(t, client)), fmt.Sprintf("gust_%d", i/10)) {
			t.Errorf("after reload %d: %v", i, names(listTools(t, client)))
		}
		for k := range c.changes {
			if !poll(waitTimeout, func() bool { return c.changes[k].Load() > changesBefore[k] }) {
				t.Fatalf("client %d did not receive list_changed after reload %d", k, i)
			}
		}
	}
	took := time.Since(began)
	processes := c.end()
	t.Logf(
		"%d reloads in %v, %d calls by %d clients, slowest %v; processes that responded: %v; changed lists: %d",
		reloads, took.Round(time.Millisecond), c.calls.Load(), clients,
		time.Duration(c.longest.Load()).Round(time.Millisecond), processes, changedLists)
	if processes["still"] != 1 || processes["calm"] != 1 || processes["wind"] < reloads/2 {
		t.Errorf("processes: %v", processes)
	}
	// The gateway, three backends and their watchdogs.
	if !poll(waitTimeout, func() bool { return len(s.marker.processes()) <= 7 }) {
		t.Errorf("left: %v", s.marker.processes())
	}
}

// While the set of backends changes, tools of unchanged backends can always be called.
func TestOPEN_CONFIG08_ToolsStayCallableDuringReloads(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	const reloads = 200
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"),
		weather("calm", "1"))
	gw, url := s.serveHTTP()
	log := gw.logReader()
	client := dialHTTP(t, url, "2025-11-25")
	poll(waitTimeout, func() bool { return len(listTools(t, client)) == 4 })
	c := startLoad(t, url, 4, "still", "calm")
	for i := range reloads {
		s.editConfig(func(doc map[string]any) {
			list := doc["backends"].([]any)
			switch i % 4 {
			case 0:
				doc["backends"] = append([]any{map[string]any{"name": "front", "embedded": "demo"}},
					list...)
			case 1:
				slices.Reverse(list)
			case 2:
				doc["backends"] = list[:len(list)-1]
			case 3:
				doc["catalog"] = map[string]any{"prefix": []string{"always", "collision"}[i/4%2]}
			}
		})
		gw.cmd.Process.Signal(syscall.SIGHUP)
		log.await(logReloaded)
	}
	processes := c.end()
	t.Logf("%d reloads, %d calls, slowest %v", reloads, c.calls.Load(),
		time.Duration(c.longest.Load()).Round(time.Millisecond))
	if processes["still"] != 1 || processes["calm"] != 1 {
		t.Errorf("processes: %v", processes)
	}
}

// Calls in flight, at the changed backend and at another one, complete normally. An invalid file
// changes nothing, and the log has the position, the error and the configuration in force,
// without a secret.
func TestOPEN_CONFIG09_ReloadKeepsCallsAndLastValidConfig(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	hush := secret(t, "env.TOKEN")
	s := newSetup(t, nil, weather("still", "1"), weather("wind", "1"))
	gw := s.start()
	log := gw.logReader()
	gw.initialize("2025-11-25")
	poll(waitTimeout, func() bool { return len(listTools(t, gw)) == 4 })
	release := filepath.Join(s.dir, "release")
	call := func(tool string) string { return string(callTool(gw, tool, `{}`).Result) }
	still, wind := call("still_who"), call("wind_who")
	gw.sendRequest(`"a"`, "tools/call", `{"name":"still_wait","arguments":{"path":"`+release+`"}}`)
	gw.sendRequest(`"b"`, "tools/call", `{"name":"wind_wait","arguments":{"path":"`+release+`"}}`)
	gw.call("ping", `{}`)

	s.editConfig(func(doc map[string]any) {
		env := backendEntry(doc, "wind")["env"].(map[string]any)
		env["WEATHER_VERSION"], env["TOKEN"], env["WEATHER_TOOL"] = "2", hush+"-1", "gust"
	})
	if line := log.await(logReloaded); !strings.Contains(line,
		`changed="wind (env.TOKEN, env.WEATHER_TOOL, env.WEATHER_VERSION; restarted)"`) ||
		!strings.Contains(line, "kept=1 dur=") {
		t.Errorf("%s", line)
	}
	gw.await("list_changed", waitTimeout,
		func(m message) bool { return m.Method == "notifications/tools/list_changed" })
	if now := call("wind_who"); !strings.Contains(now, "wind 2 ") {
		t.Errorf("the changed backend: %s", now)
	}
	if now := call("still_who"); now != still {
		t.Errorf("the other backend: %s, before %s", now, still)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if m := gw.awaitResponse(`"a"`, waitTimeout); string(m.Result) != still {
		t.Errorf("the call at the other backend: %s", m.Raw)
	}
	// This response is from the old process.
	if m := gw.awaitResponse(`"b"`, waitTimeout); string(m.Result) != wind {
		t.Errorf("the call at the changed backend: %s", m.Raw)
	}
	pid := regexp.MustCompile(`(\d+)"`).FindStringSubmatch(wind)[1]
	if !poll(waitTimeout, func() bool {
		return !slices.ContainsFunc(s.marker.processes(),
			func(p process) bool { return strconv.Itoa(p.pid) == pid })
	}) {
		t.Errorf("process %s is still running", pid)
	}

	good, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	now := call("wind_who")
	for _, c := range []struct{ name, text, log string }{
		{"invalid YAML", "backends:\n- name: wind\n  command: [x\n  env: { TOKEN: " + hush + "-2 }\n",
			"gateway.yaml:"},
		{"unknown key",
			"backends:\n- name: wind\n  command: x\n  environ: { TOKEN: " + hush + "-3 }\n",
			`gateway.yaml:4: backend \"wind\": environ: unknown key`},
		{"wrong value", "backends:\n- name: wind\n  command: x\n  env: { TOKEN: [" + hush + "-4] }\n",
			`gateway.yaml:4: backend \"wind\": env.TOKEN: `},
		{"empty", "", "gateway.yaml: is empty"},
		{"truncated", string(good[:len(good)/2]), "gateway.yaml:"},
	} {
		s.replaceConfig(c.text)
		log.await("level=ERROR", c.log)
		log.await("level=WARN", "keeping the previous configuration")
		if again := call("wind_who"); again != now {
			t.Errorf("%s: %s, before %s", c.name, again, now)
		}
	}
	os.Remove(s.config)
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await("level=ERROR", "no such file")
	log.await("level=WARN", "keeping the previous configuration")

	s.replaceConfig(string(good) + "\n# fixed\n")
	log.await(`level=INFO msg="configuration corrected, otherwise unchanged"`)
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="configuration unchanged"`)
	if again := call("wind_who"); again != now {
		t.Errorf("fixed: %s, before %s", again, now)
	}
	// PROC-05: the end of stdin ends the gateway, whatever SIGHUP does
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left := s.marker.processes(); len(left) > 0 {
		t.Errorf("left when the gateway exited: %v", left)
	}
}

// Keys that need a restart are logged, and keep their values.
func TestReload_LogsKeysThatNeedRestart(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"))
	gw, url := s.serveHTTP()
	log := gw.logReader()
	s.editConfig(func(doc map[string]any) {
		doc["limits"] = map[string]any{"sessions": 1}
		doc["log"] = map[string]any{"level": "debug", "format": "json"}
	})
	if line := log.await(logReloaded); !strings.Contains(line, "changed=log.level") {
		t.Errorf("%s", line)
	}
	log.await("level=WARN", "changes not applied until a restart", `changed="limits.sessions, log.format"`)
	for range 3 {
		dialHTTP(t, url, "2025-11-25")
	}
	s.editConfig(
		func(doc map[string]any) {
			delete(doc, "limits")
			doc["log"] = map[string]any{"level": "debug"}
		})
	log.await(`level=DEBUG msg="configuration unchanged"`)
}

// A removed token is rejected from then on, a session with a remaining token continues, and the
// new certificate is used.
func TestReload_TokensAndCertificate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	cert, key, pool := certificate(t)
	remaining, removed := secret(t, "remaining token"), secret(t, "removed token")
	added := secret(t, "added token")
	s := newSetup(t, map[string]any{
		"auth": map[string]any{"tokens": []string{removed, remaining}},
		"tls":  map[string]any{"cert": cert, "key": key},
	}, backend{Name: "demo", Embedded: "demo"})
	gw, url := s.serveHTTP()
	url = strings.Replace(url, "http://", "https://", 1)
	log := gw.logReader()
	client := func(token string) *http.Client {
		pipe := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool},
			DisableKeepAlives: true}
		return &http.Client{Transport: bearer{pipe, token}}
	}
	var responses []message
	connect := func(token string) (*streamClient, error) {
		return dialStreams(t.Context(), client(token), url, `{}`,
			func(_ string, m message) { responses = append(responses, m) })
	}
	session, err := connect(remaining)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(added); err == nil {
		t.Error("a token that is not configured yet is accepted")
	}
	removedSession, err := connect(removed)
	if err != nil {
		t.Fatal(err)
	}
	s.editConfig(
		func(doc map[string]any) {
			doc["auth"] = map[string]any{"tokens": []string{remaining, added}}
		})
	if line := log.await(logReloaded); !strings.Contains(line, "changed=auth.tokens") {
		t.Errorf("%s", line)
	}
	if err := session.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Errorf("session with a remaining token: %v", err)
	}
	if err := removedSession.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err == nil ||
		!strings.Contains(err.Error(), "401") {
		t.Errorf("session with a removed token: %v", err)
	}
	if v, err := connect(added); err != nil {
		t.Errorf("the new token: %v", err)
	} else if err := v.deleteSession(); err != nil {
		t.Error(err)
	}

	// Half a certificate changes nothing; a complete one is loaded although the configuration is
	// unchanged.
	cert2, key2, pool2 := certificate(t)
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(cert2, cert)
	log.await("level=ERROR", "gateway.yaml:", ": tls: ")
	if err := session.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Errorf("with half a certificate: %v", err)
	}
	move(key2, key)
	log.await(logReloaded)
	if err := session.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err == nil {
		t.Error("the old certificate is still used")
	}
	newTLS := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool2}, DisableKeepAlives: true,
	}
	session.client.Transport = bearer{newTLS, remaining}
	if err := session.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Errorf("with the new certificate: %v", err)
	}

	// Removing all tokens would allow access without authentication: a reload does not do that.
	s.editConfig(func(doc map[string]any) { delete(doc, "auth") })
	log.await("level=WARN", "changes not applied until a restart", "changed=auth.tokens")
	noToken := &http.Client{Transport: newTLS}
	if res, err := noToken.Post(url, "application/json", strings.NewReader("{}")); err != nil ||
		res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %v %v", res, err)
	} else {
		res.Body.Close()
	}
	if err := session.deleteSession(); err != nil {
		t.Error(err)
	}
	removedSession.cancel()
}

// If a reload has an unset variable in the entry of a running backend, the backend keeps running
// with its old entry, its new filters apply at once, and both are logged. If the variable is in
// a filter, the backend is stopped.
func TestReload_KeepsMisconfiguredBackend_F_CLI_11(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, weather("still", "1"), weather("wind", "1"))
	gw := s.start()
	log := gw.logReader()
	gw.initialize("2025-11-25")
	poll(waitTimeout, func() bool { return len(listTools(t, gw)) == 4 })
	call := func(tool string) string { return string(callTool(gw, tool, `{}`).Raw) }
	changed := func(change func(b map[string]any)) {
		s.editConfig(func(doc map[string]any) { change(backendEntry(doc, "wind")) })
	}
	pid := regexp.MustCompile(`wind 1 (\d+)`).FindStringSubmatch(call("wind_who"))[1]

	changed(func(b map[string]any) {
		b["env"].(map[string]any)["WEATHER_VERSION"] = "${NO_SUCH_VERSION}"
		b["tools"] = map[string]any{"deny": []string{"wind_wait"}}
	})
	const logged, why = "keeping the old entry, with the new filters",
		"variable NO_SUCH_VERSION is not set"
	log.await("level=WARN", logged, "backend=wind", why)
	if line := log.await(logReloaded); !strings.Contains(line, `changed="wind (tools.deny)"`) {
		t.Errorf("%s", line)
	}
	if now := call("wind_who"); !strings.Contains(now, "wind 1 "+pid) {
		t.Errorf("the backend: %s, before process %s", now, pid)
	}
	if now := call("wind_wait"); !strings.Contains(now, `"error"`) {
		t.Errorf("the denied tool: %s", now)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP) // an explicit request logs the warning again
	log.await("level=WARN", logged, why)

	changed(func(b map[string]any) { b["env"].(map[string]any)["WEATHER_VERSION"] = "2" })
	if line := log.await(logReloaded); !strings.Contains(line,
		`changed="wind (env.WEATHER_VERSION; restarted)"`) {
		t.Errorf("%s", line)
	}
	if now := call("wind_who"); !strings.Contains(now, "wind 2 ") {
		t.Errorf("the corrected entry: %s", now)
	}

	changed(
		func(b map[string]any) { b["tools"] = map[string]any{"deny": []string{"${NO_SUCH_TOOL}"}} })
	line := log.await(logReloaded)
	if !strings.Contains(line, "; stopped)") || strings.Contains(line, "restarted") ||
		!strings.Contains(line, `down="wind (misconfigured)"`) {
		t.Errorf("%s", line)
	}
	if now := call("wind_who"); !strings.Contains(now, "variable NO_SUCH_TOOL is not set") {
		t.Errorf("the backend with an unset variable in its filter: %s", now)
	}
	changed(func(b map[string]any) { delete(b, "tools") })
	if line := log.await(logReloaded); !strings.Contains(line, "misconfigured, ") ||
		!strings.Contains(line, "; started)") {
		t.Errorf("%s", line)
	}
	if now := call("wind_who"); !strings.Contains(now, "wind 2 ") {
		t.Errorf("the backend without the filter: %s", now)
	}
}
