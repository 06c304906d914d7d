//go:build unix

package integration

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// 100 reloads while clients call all the time, each of which changes a backend: no call is lost, no session ends, who did
// not change is not touched, and what a client calls never goes back to what was before.
func TestReloadUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	const reloads, clients = 100, 6
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"), weather("mute", "1"), weather("wind", "0"))
	gw, url := s.web()
	log := gw.journal()
	asker := dialHTTP(t, url, "2025-11-25")
	poll(patience, func() bool { return len(listTools(t, asker)) == 6 })
	c := gather(t, url, clients, "still", "mute", "wind")
	began := time.Now()
	heard := 0
	for i := 1; i <= reloads; i++ {
		var told []int64
		for k := range c.changes {
			told = append(told, c.changes[k].Load())
		}
		s.edit(func(doc map[string]any) {
			env := backendIn(doc, "wind")["env"].(map[string]any)
			env["WEATHER_VERSION"] = strconv.Itoa(i)
			env["WEATHER_TOOL"] = fmt.Sprintf("gust_%d", i/10)
		})
		if i%2 == 0 {
			gw.cmd.Process.Signal(syscall.SIGHUP)
		}
		if line := log.await(loadedAnew); !strings.Contains(line, "kept=2") || !strings.Contains(line, `changed="wind (env.`) {
			t.Errorf("reload %d: %s", i, line)
		}
		if m := callTool(asker, "wind_who", `{}`); !strings.Contains(string(m.Result), fmt.Sprintf(`"wind %d `, i)) {
			t.Errorf("after reload %d: %s", i, m.Raw)
		}
		if i%10 != 0 {
			continue
		}
		heard++
		if !slices.Contains(names(listTools(t, asker)), fmt.Sprintf("gust_%d", i/10)) {
			t.Errorf("after reload %d: %v", i, names(listTools(t, asker)))
		}
		for k := range c.changes {
			if !poll(patience, func() bool { return c.changes[k].Load() > told[k] }) {
				t.Fatalf("client %d was not told of the list after reload %d", k, i)
			}
		}
	}
	took := time.Since(began)
	processes := c.disperse()
	t.Logf("%d reloads in %v, %d calls by %d clients, the longest %v; processes that answered: %v; lists that changed: %d",
		reloads, took.Round(time.Millisecond), c.calls.Load(), clients, time.Duration(c.longest.Load()).Round(time.Millisecond), processes, heard)
	if processes["still"] != 1 || processes["mute"] != 1 || processes["wind"] < reloads/2 {
		t.Errorf("processes: %v", processes)
	}
	if !poll(patience, func() bool { return len(s.mark.processes()) <= 7 }) { // the gateway, three backends and their holders
		t.Errorf("left: %v", s.mark.processes())
	}
}

// docker/mcp-gateway#384: while the set of backends changes, what is not concerned is found all the time.
func TestOPEN_CONFIG08_NothingIsNotFoundDuringReloads(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	const reloads = 200
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"), weather("mute", "1"))
	gw, url := s.web()
	log := gw.journal()
	asker := dialHTTP(t, url, "2025-11-25")
	poll(patience, func() bool { return len(listTools(t, asker)) == 4 })
	c := gather(t, url, 4, "still", "mute")
	for i := range reloads {
		s.edit(func(doc map[string]any) {
			list := doc["backends"].([]any)
			switch i % 4 {
			case 0:
				doc["backends"] = append([]any{map[string]any{"name": "front", "embedded": "demo"}}, list...)
			case 1:
				slices.Reverse(list)
			case 2:
				doc["backends"] = list[:len(list)-1]
			case 3:
				doc["catalog"] = map[string]any{"prefix": []string{"always", "collision"}[i/4%2]}
			}
		})
		gw.cmd.Process.Signal(syscall.SIGHUP)
		log.await(loadedAnew)
	}
	processes := c.disperse()
	t.Logf("%d reloads, %d calls, the longest %v", reloads, c.calls.Load(), time.Duration(c.longest.Load()).Round(time.Millisecond))
	if processes["still"] != 1 || processes["mute"] != 1 {
		t.Errorf("processes: %v", processes)
	}
}

// anomalyco/opencode#37421: calls in flight, at the backend that changes and at another, end as they would have; a file that is
// wrong changes nothing, and the log says where, what and what counts meanwhile, without a secret.
func TestOPEN_CONFIG09_ReloadKeepsCallsAndGoodConfigurations(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil, weather("still", "1"), weather("wind", "1"))
	gw := s.start()
	log := gw.journal()
	gw.greet("2025-11-25")
	poll(patience, func() bool { return len(listTools(t, gw)) == 4 })
	release := filepath.Join(s.dir, "release")
	said := func(tool string) string { return string(callTool(gw, tool, `{}`).Result) }
	still, wind := said("still_who"), said("wind_who")
	gw.ask(`"a"`, "tools/call", `{"name":"still_wait","arguments":{"path":"`+release+`"}}`)
	gw.ask(`"b"`, "tools/call", `{"name":"wind_wait","arguments":{"path":"`+release+`"}}`)
	gw.call("ping", `{}`)

	s.edit(func(doc map[string]any) {
		env := backendIn(doc, "wind")["env"].(map[string]any)
		env["WEATHER_VERSION"], env["TOKEN"], env["WEATHER_TOOL"] = "2", "hush-hush-1", "gust"
	})
	if line := log.await(loadedAnew); !strings.Contains(line, `changed="wind (env.TOKEN, env.WEATHER_TOOL, env.WEATHER_VERSION; restarted)"`) || !strings.Contains(line, "kept=1 dur=") {
		t.Errorf("%s", line)
	}
	gw.await("list_changed", patience, func(m message) bool { return m.Method == "notifications/tools/list_changed" })
	if now := said("wind_who"); !strings.Contains(now, "wind 2 ") {
		t.Errorf("the backend that changed: %s", now)
	}
	if now := said("still_who"); now != still {
		t.Errorf("the other: %s, before %s", now, still)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if m := gw.answer(`"a"`, patience); string(m.Result) != still {
		t.Errorf("the call at the other: %s", m.Raw)
	}
	if m := gw.answer(`"b"`, patience); string(m.Result) != wind { // by the process that had it
		t.Errorf("the call at the backend that changed: %s", m.Raw)
	}
	pid := regexp.MustCompile(`(\d+)"`).FindStringSubmatch(wind)[1]
	if !poll(patience, func() bool {
		return !slices.ContainsFunc(s.mark.processes(), func(p process) bool { return strconv.Itoa(p.pid) == pid })
	}) {
		t.Errorf("process %s is still there", pid)
	}

	good, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	now := said("wind_who")
	for _, c := range []struct{ name, text, says string }{
		{"no YAML", "backends:\n- name: wind\n  command: [x\n  env: { TOKEN: hush-hush-2 }\n", "gateway.yaml:"},
		{"unknown key", "backends:\n- name: wind\n  command: x\n  environ: { TOKEN: hush-hush-3 }\n", `gateway.yaml:4: backend \"wind\": environ: unknown key`},
		{"wrong value", "backends:\n- name: wind\n  command: x\n  env: { TOKEN: [hush-hush-4] }\n", `gateway.yaml:4: backend \"wind\": env.TOKEN: `},
		{"nothing at all", "", "gateway.yaml: is empty"},
		{"half of it", string(good[:len(good)/2]), "gateway.yaml:"},
	} {
		s.replace(c.text)
		log.await("level=ERROR", c.says)
		log.await("level=WARN", "keeping the previous configuration")
		if again := said("wind_who"); again != now {
			t.Errorf("%s: %s, before %s", c.name, again, now)
		}
	}
	os.Remove(s.config)
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await("level=ERROR", "no such file")
	log.await("level=WARN", "keeping the previous configuration")

	s.replace(string(good) + "\n# mended\n")
	log.await(`level=INFO msg="configuration is valid and unchanged again"`)
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="configuration unchanged"`)
	if again := said("wind_who"); again != now {
		t.Errorf("mended: %s, before %s", again, now)
	}
	if text, _ := os.ReadFile(gw.stderr); bytes.Contains(text, []byte("hush")) {
		t.Errorf("a secret is in the log")
	}
	if code := gw.finish(20 * time.Second); code != 0 { // PROC-05: end of input ends it, whatever SIGHUP does
		t.Errorf("exit code %d", code)
	}
	if left := s.mark.processes(); len(left) > 0 {
		t.Errorf("left when the gateway exited: %v", left)
	}
}

// What needs a restart is said, and stays what it was.
func TestReloadSaysWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"))
	gw, url := s.web()
	log := gw.journal()
	s.edit(func(doc map[string]any) {
		doc["limits"] = map[string]any{"sessions": 1}
		doc["log"] = map[string]any{"level": "debug", "format": "json"}
	})
	if line := log.await(loadedAnew); !strings.Contains(line, "changed=log.level") {
		t.Errorf("%s", line)
	}
	log.await("level=WARN", "take effect after a restart: limits.sessions, log.format")
	for range 3 {
		dialHTTP(t, url, "2025-11-25")
	}
	s.edit(func(doc map[string]any) { delete(doc, "limits"); doc["log"] = map[string]any{"level": "debug"} })
	log.await(`level=DEBUG msg="configuration unchanged"`)
}

// A token that is taken back is no good from then on, one that stays keeps its session, and the certificate is the new one.
func TestReloadOfTokensAndCertificate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	cert, key, pool := certificate(t)
	const stays, goes, comes = "0123456789abcdef-stays", "0123456789abcdef-goes", "0123456789abcdef-comes"
	s := newSetup(t, map[string]any{
		"auth": map[string]any{"tokens": []string{goes, stays}}, "tls": map[string]any{"cert": cert, "key": key},
	}, backend{Name: "demo", Embedded: "demo"})
	gw, url := s.web()
	url = strings.Replace(url, "http://", "https://", 1)
	log := gw.journal()
	client := func(token string) *http.Client {
		pipe := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
		return &http.Client{Transport: bearer{pipe, token}}
	}
	var answers []message
	enter := func(token string) (*visitor, error) {
		return visit(t.Context(), client(token), url, `{}`, func(_ string, m message) { answers = append(answers, m) })
	}
	kept, err := enter(stays)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := enter(comes); err == nil {
		t.Error("a token that is not there yet is good")
	}
	gone, err := enter(goes)
	if err != nil {
		t.Fatal(err)
	}
	s.edit(func(doc map[string]any) { doc["auth"] = map[string]any{"tokens": []string{stays, comes}} })
	if line := log.await(loadedAnew); !strings.Contains(line, "changed=auth.tokens") {
		t.Errorf("%s", line)
	}
	if err := kept.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Errorf("who keeps its token: %v", err)
	}
	if err := gone.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("who has lost its token: %v", err)
	}
	if v, err := enter(comes); err != nil {
		t.Errorf("the new token: %v", err)
	} else if err := v.leave(); err != nil {
		t.Error(err)
	}

	// Half a certificate changes nothing; all of it does, though the configuration has not changed.
	cert2, key2, pool2 := certificate(t)
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(cert2, cert)
	log.await("level=ERROR", "gateway.yaml:", ": tls: ")
	if err := kept.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Errorf("with half a certificate: %v", err)
	}
	move(key2, key)
	log.await(loadedAnew)
	if err := kept.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err == nil {
		t.Error("the old certificate is still there")
	}
	kept.client.Transport = bearer{&http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool2}, DisableKeepAlives: true}, stays}
	if err := kept.post("1", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err != nil {
		t.Errorf("with the new certificate: %v", err)
	}

	// To take all tokens away would open the door to everybody: not by half a file.
	s.edit(func(doc map[string]any) { delete(doc, "auth") })
	log.await("level=WARN", "take effect after a restart: auth.tokens")
	if res, err := (&http.Client{Transport: kept.client.Transport.(bearer).RoundTripper}).Post(url, "application/json", strings.NewReader("{}")); err != nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %v %v", res, err)
	} else {
		res.Body.Close()
	}
	if err := kept.leave(); err != nil {
		t.Error(err)
	}
	gone.cancel()
	if text, _ := os.ReadFile(gw.stderr); bytes.Contains(text, []byte("0123456789abcdef-")) {
		t.Error("a token is in the log")
	}
}

// Where there was no file SIGHUP looks for one.
func TestHangupFindsTheFirstFile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil)
	if err := os.Remove(s.config); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gateway(t), "--state", "none", "--log-level", "debug")
	cmd.Env, cmd.Dir = s.env(), s.dir
	gw := startRaw(t, cmd)
	log := gw.journal()
	gw.greet("2025-11-25")
	if m := callTool(gw, "add", `{"a":1,"b":2}`); m.Result == nil {
		t.Fatalf("%s", m.Raw)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="configuration unchanged"`)
	b := weather("still", "1")
	b.Env[markEnv] = string(s.mark)
	text, _ := yaml.Marshal(map[string]any{"backends": []backend{b}})
	s.replace(string(text))
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await("level=ERROR", "is not approved", "gateway trust ") // F-SEC-2
	trust := func() {
		t.Helper()
		cmd := exec.Command(gateway(t), "trust")
		cmd.Env, cmd.Dir = s.env(), s.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	trust()
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(loadedAnew, "file=gateway.yaml", "added=still", "removed=demo")
	if m := callTool(gw, "still_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	s.edit(func(doc map[string]any) { backendIn(doc, "still")["env"].(map[string]any)["WEATHER_VERSION"] = "2" })
	log.await("level=ERROR", "is not approved") // from now on it is watched
	trust()
	log.await(loadedAnew, "changed=") // and so are the approvals
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// gateway check --diff tells what a reload would do, of the gateway that runs, and starts nothing.
func TestCheckDiff(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	quiet := weather("quiet", "1")
	quiet.Env[notesEnv] = notes
	s := newSetup(t, map[string]any{"log": map[string]any{"level": "info"}}, weather("still", "1"), weather("wind", "1"), quiet)
	diff := func(want int, parts ...string) {
		t.Helper()
		cmd := exec.Command(gateway(t), "check", "--diff", "-c", s.config)
		cmd.Env, cmd.Dir = s.env(), s.dir
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("exit code %d, want %d", code, want)
		}
		fields := strings.Join(strings.Fields(string(out)), " ")
		for _, p := range parts {
			if !strings.Contains(fields, p) {
				t.Errorf("no %q in\n%s", p, out)
			}
		}
		if strings.Contains(string(out), "hush") {
			t.Errorf("a secret in\n%s", out)
		}
	}
	diff(0, "the file is valid; no gateway has recorded")
	if notesOf(notes)[0] != "" {
		t.Error("a backend was started")
	}
	gw, _ := s.web()
	log := gw.journal()
	if !poll(patience, func() bool {
		all, _ := filepath.Glob(filepath.Join(s.dir, "state", "applied", "*.json"))
		return len(all) == 1
	}) {
		t.Fatal("there is no record")
	}
	diff(0, fmt.Sprintf("the gateway (process %d)", gw.cmd.Process.Pid), "nothing would change") // --listen is a flag's
	gw.cmd.Process.Signal(syscall.SIGSTOP)                                                       // so that it does not load what is only being looked at
	s.edit(func(doc map[string]any) {
		backendIn(doc, "wind")["env"].(map[string]any)["TOKEN"] = "hush-hush"
		backendIn(doc, "still")["enabled"] = false
		s.add(doc, weather("new", "1"))
		s.add(doc, weather("later", "1"))
		backends := doc["backends"].([]any)
		backends[len(backends)-1] = map[string]any{"name": "later", "command": "x", "enabled": false}
		doc["backends"] = slices.DeleteFunc(doc["backends"].([]any), func(b any) bool { m, ok := b.(map[string]any); return ok && m["name"] == "quiet" })
		doc["catalog"] = map[string]any{"prefix": "always"}
		doc["limits"] = map[string]any{"sessions": 3}
	})
	diff(0, "backend new added backend later added not enabled", "backend quiet removed", "backend still disabled", "backend wind changed env.TOKEN; restarts it",
		"catalog.prefix changed limits.sessions changed needs a restart")
	gw.cmd.Process.Signal(syscall.SIGCONT)
	log.await(loadedAnew, `added="new, later (disabled)"`, `removed="quiet, still"`, `changed="wind (env.TOKEN; restarted), catalog.prefix"`)
	if !poll(patience, func() bool {
		cmd := exec.Command(gateway(t), "check", "--diff", "-c", s.config)
		cmd.Env, cmd.Dir = s.env(), s.dir
		out, _ := cmd.CombinedOutput()
		return !strings.Contains(string(out), "backend ")
	}) {
		t.Error("what was loaded is not on record")
	}
	diff(0, "limits.sessions changed needs a restart")
	s.replace("backends: [{name: a, command: b, env: {TOKEN: [hush]}}]")
	diff(2, "gateway.yaml:1: ")
	s.replace("")
	diff(2, "gateway.yaml: is empty")
}

// A new server that hangs is named, and does not keep its repair waiting, nor whoever asks by SIGHUP; what is loaded
// meanwhile says who is not up.
func TestReloadDoesNotWaitForAServerThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil, weather("still", "1"))
	gw := s.start()
	log := gw.journal()
	gw.greet("2025-11-25")
	poll(patience, func() bool { return len(listTools(t, gw)) == 2 })
	hangs := func(doc map[string]any) {
		b := backendIn(doc, "hang")
		b["command"], b["args"] = "sleep", []any{"600"}
	}
	began := time.Now()
	s.edit(func(doc map[string]any) {
		s.add(doc, backend{Name: "hang", Command: "sleep", Args: []string{"600"}, Env: map[string]string{}})
	})
	log.await("level=INFO", "reloading ", ": waiting for hang")
	mended := weather("hang", "1")
	s.edit(func(doc map[string]any) {
		b := backendIn(doc, "hang")
		b["command"], b["args"] = mended.Command, mended.Args
		for key, value := range mended.Env {
			b["env"].(map[string]any)[key] = value
		}
	})
	log.await(loadedAnew, `down="hang (starting)"`, "added=hang")
	if line := log.await(loadedAnew, `changed="hang (`); strings.Contains(line, "down=") {
		t.Error(line)
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("it took %v", took)
	}
	if m := callTool(gw, "hang_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	began = time.Now()
	s.edit(hangs)
	log.await("level=INFO", "reloading ", ": waiting for hang")
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(loadedAnew, `down="hang (starting)"`)
	log.await("level=INFO", "configuration unchanged")
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("after SIGHUP it took %v", took)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Whoever has repaired a server says so with SIGHUP: it is tried at once, though its file is what it was.
func TestHangupTriesWhatHasFailed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil, weather("still", "1"))
	program := filepath.Join(s.dir, "server")
	s.edit(func(doc map[string]any) {
		b := weather("broken", "1")
		b.Command = program
		s.add(doc, b)
	})
	gw := s.start()
	log := gw.journal()
	gw.greet("2025-11-25")
	log.await("backend fails repeatedly", "backend=broken") // the next try is half a minute away
	if err := os.Symlink(weather("broken", "1").Command, program); err != nil {
		t.Fatal(err)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="configuration unchanged"`)
	log.await("level=INFO", "retrying failed backends at once: broken")
	if !poll(patience, func() bool { return len(listTools(t, gw)) == 4 }) {
		t.Errorf("there is %v", names(listTools(t, gw)))
	}
	if m := callTool(gw, "broken_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A reload whose entry of a running backend lacks a variable leaves that backend running as it was, takes its filters
// over at once, and says so. If the variable is in a filter the backend is stopped.
func TestReloadHoldsAMisconfiguredBackend_F_CLI_11(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, weather("still", "1"), weather("wind", "1"))
	gw := s.start()
	log := gw.journal()
	gw.greet("2025-11-25")
	poll(patience, func() bool { return len(listTools(t, gw)) == 4 })
	said := func(tool string) string { return string(callTool(gw, tool, `{}`).Raw) }
	changed := func(change func(b map[string]any)) {
		s.edit(func(doc map[string]any) { change(backendIn(doc, "wind")) })
	}
	pid := regexp.MustCompile(`wind 1 (\d+)`).FindStringSubmatch(said("wind_who"))[1]

	changed(func(b map[string]any) {
		b["env"].(map[string]any)["WEATHER_VERSION"] = "${NO_SUCH_VERSION}"
		b["tools"] = map[string]any{"deny": []string{"wind_wait"}}
	})
	const held, why = "keeping the old entry, with the new filters", "variable NO_SUCH_VERSION is not set"
	log.await("level=WARN", held, "backend=wind", why)
	if line := log.await(loadedAnew); !strings.Contains(line, `changed="wind (tools.deny)"`) {
		t.Errorf("%s", line)
	}
	if now := said("wind_who"); !strings.Contains(now, "wind 1 "+pid) {
		t.Errorf("the backend: %s, before process %s", now, pid)
	}
	if now := said("wind_wait"); !strings.Contains(now, `"error"`) {
		t.Errorf("what is not allowed any more: %s", now)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP) // whoever asks is told again
	log.await("level=WARN", held, why)

	changed(func(b map[string]any) { b["env"].(map[string]any)["WEATHER_VERSION"] = "2" })
	if line := log.await(loadedAnew); !strings.Contains(line, `changed="wind (env.WEATHER_VERSION; restarted)"`) {
		t.Errorf("%s", line)
	}
	if now := said("wind_who"); !strings.Contains(now, "wind 2 ") {
		t.Errorf("the entry that was corrected: %s", now)
	}

	changed(func(b map[string]any) { b["tools"] = map[string]any{"deny": []string{"${NO_SUCH_TOOL}"}} })
	line := log.await(loadedAnew)
	if !strings.Contains(line, "; stopped)") || strings.Contains(line, "restarted") || !strings.Contains(line, `down="wind (misconfigured)"`) {
		t.Errorf("%s", line)
	}
	if now := said("wind_who"); !strings.Contains(now, "variable NO_SUCH_TOOL is not set") {
		t.Errorf("the backend whose filter is not known: %s", now)
	}
	changed(func(b map[string]any) { delete(b, "tools") })
	if line := log.await(loadedAnew); !strings.Contains(line, "misconfigured, ") || !strings.Contains(line, "; started)") {
		t.Errorf("%s", line)
	}
	if now := said("wind_who"); !strings.Contains(now, "wind 2 ") {
		t.Errorf("the backend whose filter is gone: %s", now)
	}
}
