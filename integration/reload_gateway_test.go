//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// playWeather is a server that can be told apart from others and from what it was before: WEATHER_NAME begins the names
// of its tools, WEATHER_VERSION is in its answers. NAME_who says "NAME VERSION PID" at once, NAME_wait when there is a
// file at the path it is given. With WEATHER_TOOL it has a tool of that name, too.
func playWeather() int {
	name, version, more := strings.TrimSuffix(os.Getenv("WEATHER_NAME"), "_"), os.Getenv("WEATHER_VERSION"), os.Getenv("WEATHER_TOOL")
	tools := []string{name + "_who", name + "_wait"}
	if more != "" {
		tools = append(tools, more)
	}
	var list []string
	for _, t := range tools {
		list = append(list, `{"name":"`+t+`","inputSchema":{"type":"object"}}`)
	}
	who, _ := json.Marshal(fmt.Sprintf("%s %s %d", name, version, os.Getpid()))
	var writing sync.Mutex
	reply := func(id json.RawMessage, result string) {
		writing.Lock()
		defer writing.Unlock()
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Path string }
			}
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		answer := `{"content":[{"type":"text","text":` + string(who) + `}]}`
		switch {
		case m.Method == "initialize":
			reply(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"weather","version":"1"}}`)
		case m.Method == "tools/list":
			reply(m.ID, `{"tools":[`+strings.Join(list, ",")+`]}`)
		case m.Method == "tools/call" && m.Params.Name == name+"_wait":
			go func() {
				if !poll(patience, func() bool { _, err := os.Stat(m.Params.Arguments.Path); return err == nil }) {
					answer = `{"content":[],"isError":true}`
				}
				reply(m.ID, answer)
			}()
		case m.Method == "tools/call":
			reply(m.ID, answer)
		default:
			reply(m.ID, `{}`)
		}
	}
}

func weather(name, version string) backend {
	b := actor(name, "weather", "")
	b.Env["WEATHER_NAME"], b.Env["WEATHER_VERSION"] = name+"_", version // values are masked in the log, and the name is to be read there
	return b
}

// edit changes the configuration, in the way of an editor: what is there is replaced.
func (s *setup) edit(change func(doc map[string]any)) {
	s.t.Helper()
	text, err := os.ReadFile(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		s.t.Fatal(err)
	}
	change(doc)
	if text, err = yaml.Marshal(doc); err != nil {
		s.t.Fatal(err)
	}
	s.replace(string(text))
}

// replace puts a file in the place of the configuration.
func (s *setup) replace(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.config+".new", s.config); err != nil {
		s.t.Fatal(err)
	}
}

// backendIn is what a document says of a backend.
func backendIn(doc map[string]any, name string) map[string]any {
	for _, b := range doc["backends"].([]any) {
		if b := b.(map[string]any); b["name"] == name {
			return b
		}
	}
	return nil
}

// add gives a document one more backend; its processes are marked like the others.
func (s *setup) add(doc map[string]any, b backend) {
	b.Env = maps.Clone(b.Env)
	b.Env[markEnv] = string(s.mark)
	doc["backends"] = append(doc["backends"].([]any), b)
}

// A journal reads what a gateway logs, each line once.
type journal struct {
	t    testing.TB
	path string
	at   int64
	rest string
}

func (j *journal) lines() []string {
	f, err := os.Open(j.path)
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	f.Seek(j.at, io.SeekStart)
	text, _ := io.ReadAll(f)
	j.at += int64(len(text))
	lines := strings.SplitAfter(j.rest+string(text), "\n")
	j.rest = lines[len(lines)-1]
	return lines[:len(lines)-1]
}

// await returns the next line that has all of these.
func (j *journal) await(parts ...string) string {
	j.t.Helper()
	var found string
	var passed []string
	if !poll(patience, func() bool {
		lines := j.lines()
		for i, line := range lines {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				found = line
				j.unread(lines[i+1:])
				return true
			}
		}
		passed = append(passed, lines...)
		return false
	}) {
		j.t.Fatalf("the log does not say %q:\n%s", parts, strings.Join(passed[max(0, len(passed)-40):], ""))
	}
	return found
}

func (j *journal) unread(lines []string) {
	for _, line := range lines {
		j.at -= int64(len(line))
	}
	j.at -= int64(len(j.rest))
	j.rest = ""
}

func (c *rawClient) journal() *journal { return &journal{t: c.t, path: c.stderr} }

const loadedAnew = `msg="the configuration was loaded anew"`

// web starts the gateway as an HTTP server.
func (s *setup) web() (gw *rawClient, url string) {
	s.t.Helper()
	addr := "127.0.0.1:" + freePort(s.t)
	gw = s.start("serve", "--listen", addr)
	awaitListener(s.t, addr, gw.exited)
	s.t.Cleanup(func() {
		gw.cmd.Process.Signal(syscall.SIGTERM)
		if code := gw.exitCode(20 * time.Second); code != 0 {
			s.t.Errorf("exit code %d after SIGTERM", code)
		}
	})
	return gw, "http://" + addr + "/mcp"
}

// A crowd calls backends all the time.
type crowd struct {
	t       testing.TB
	tools   []string
	calls   atomic.Int64
	changes []atomic.Int64 // list_changed that each client heard
	longest atomic.Int64

	mu   sync.Mutex
	pids map[string]map[string]bool // by backend

	stop context.CancelFunc
	done sync.WaitGroup
}

// gather lets clients call these tools, NAME_who each, until disperse. Any answer that is none, or another's, is an error.
func gather(t testing.TB, url string, clients int, names ...string) *crowd {
	t.Helper()
	c := &crowd{t: t, changes: make([]atomic.Int64, clients), pids: map[string]map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	t.Cleanup(func() { c.disperse() })
	for _, n := range names {
		c.tools = append(c.tools, n+"_who")
		c.pids[n] = map[string]bool{}
	}
	for i := range clients {
		answers := make(chan message, 1)
		var news atomic.Bool // the list is to be read, as clients do: who never has is told of no change
		news.Store(true)
		v, err := visit(t.Context(), &http.Client{Timeout: patience}, url, `{}`, nil)
		if err == nil {
			v.hear = func(stream string, m message) {
				if m.Method == "notifications/tools/list_changed" {
					c.changes[i].Add(1)
					news.Store(true)
				} else if m.Method == "" {
					answers <- m
				}
			}
			v.client.Timeout = 0
			err = v.listen()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.done.Go(func() {
			defer v.leave()
			last := map[string]int{}
			for n := 0; ctx.Err() == nil; n++ {
				if news.Swap(false) {
					if err := v.post("x", fmt.Sprintf(`{"jsonrpc":"2.0","id":"list %d","method":"tools/list"}`, n)); err != nil {
						t.Errorf("list %d of client %d: %v", n, i, err)
						return
					}
					<-answers
				}
				name := names[n%len(names)]
				began := time.Now()
				err := v.post("x", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s_who"}}`, n+1, name))
				if err != nil {
					t.Errorf("call %d of client %d, at %s: %v", n, i, name, err)
					return
				}
				c.check(<-answers, name, last)
				took := int64(time.Since(began))
				for old := c.longest.Load(); took > old && !c.longest.CompareAndSwap(old, took); old = c.longest.Load() {
				}
				c.calls.Add(1)
			}
		})
	}
	return c
}

var whoAnswer = regexp.MustCompile(`"text":"(\w+) (\d+) (\d+)"`)

func (c *crowd) check(m message, name string, last map[string]int) {
	a := whoAnswer.FindSubmatch(m.Result)
	if a == nil || string(a[1]) != name {
		c.t.Errorf("%s: %s", name, m.Raw)
		return
	}
	version, _ := strconv.Atoi(string(a[2]))
	if version < last[name] {
		c.t.Errorf("%s: version %d came after %d", name, version, last[name])
	}
	last[name] = version
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[name][string(a[3])] = true
}

// disperse ends the calls, and returns how many processes answered for each backend.
func (c *crowd) disperse() map[string]int {
	c.stop()
	c.done.Wait()
	n := map[string]int{}
	for name, pids := range c.pids {
		n[name] = len(pids)
	}
	return n
}

// 100 reloads while clients call all the time, each of which changes a backend: no call is lost, no session ends, who did
// not change is not touched, and what a client calls never goes back to what was before.
func TestReloadUnderLoad(t *testing.T) {
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
	if line := log.await(loadedAnew); !strings.Contains(line, `changed="wind (env.TOKEN, env.WEATHER_TOOL, env.WEATHER_VERSION; started anew)"`) || !strings.Contains(line, "kept=1 dur=") {
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
		log.await("level=WARN", "the configuration of before stays in force")
		if again := said("wind_who"); again != now {
			t.Errorf("%s: %s, before %s", c.name, again, now)
		}
	}
	os.Remove(s.config)
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await("level=ERROR", "no such file")
	log.await("level=WARN", "the configuration of before stays in force")

	s.replace(string(good) + "\n# mended\n")
	log.await(`level=INFO msg="the file is again what is in force"`)
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="the configuration has not changed"`)
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
	log.await("level=WARN", "when the gateway is started anew: limits.sessions, log.format")
	for range 3 {
		dialHTTP(t, url, "2025-11-25")
	}
	s.edit(func(doc map[string]any) { delete(doc, "limits"); doc["log"] = map[string]any{"level": "debug"} })
	log.await(`level=DEBUG msg="the configuration has not changed"`)
}

// A token that is taken back is no good from then on, one that stays keeps its session, and the certificate is the new one.
func TestReloadOfTokensAndCertificate(t *testing.T) {
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
	log.await("level=ERROR", "gateway.yaml: tls: ")
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
	log.await("level=WARN", "when the gateway is started anew: auth.tokens")
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
	log.await(`level=INFO msg="the configuration has not changed"`)
	b := weather("still", "1")
	b.Env[markEnv] = string(s.mark)
	text, _ := yaml.Marshal(map[string]any{"backends": []backend{b}})
	s.replace(string(text))
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(loadedAnew, "file=gateway.yaml", "added=still", "removed=demo")
	if m := callTool(gw, "still_who", `{}`); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	s.edit(func(doc map[string]any) { backendIn(doc, "still")["env"].(map[string]any)["WEATHER_VERSION"] = "2" })
	log.await(loadedAnew, "changed=") // from now on it is watched
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
	diff(0, "it is valid; no gateway has left a record")
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
	diff(0, fmt.Sprintf("the gateway of process %d", gw.cmd.Process.Pid), "nothing would change") // --listen is a flag's
	gw.cmd.Process.Signal(syscall.SIGSTOP)                                                        // so that it does not load what is only being looked at
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
	log.await(loadedAnew, `added="new, later (disabled)"`, `removed="quiet, still"`, `changed="wind (env.TOKEN; started anew), catalog.prefix"`)
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
	log.await("level=INFO", "anew: waiting for hang")
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
	log.await("level=INFO", "anew: waiting for hang")
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(loadedAnew, `down="hang (starting)"`)
	log.await("level=INFO", "the configuration has not changed")
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("after SIGHUP it took %v", took)
	}
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Whoever has repaired a server says so with SIGHUP: it is tried at once, though its file is what it was.
func TestHangupTriesWhatHasFailed(t *testing.T) {
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
	log.await("backend fails again and again", "backend=broken") // the next try is half a minute away
	if err := os.Symlink(weather("broken", "1").Command, program); err != nil {
		t.Fatal(err)
	}
	gw.cmd.Process.Signal(syscall.SIGHUP)
	log.await(`level=INFO msg="the configuration has not changed"`)
	log.await("level=INFO", "failed backends are tried at once: broken")
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
