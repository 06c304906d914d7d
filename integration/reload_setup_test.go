//go:build unix

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
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

const loadedAnew = `msg="configuration reloaded"`

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
