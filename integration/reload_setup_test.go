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

// runWeather is a server with a name and a version. WEATHER_NAME is the prefix of its tool
// names, WEATHER_VERSION is in its responses. NAME_who returns "NAME VERSION PID" at once,
// NAME_wait when the file in its argument path exists. WEATHER_TOOL adds a tool with that name.
// WEATHER_TEXT is a file with the description of NAME_who, which is read for each list.
func runWeather() int {
	name, version, more := strings.TrimSuffix(os.Getenv("WEATHER_NAME"), "_"),
		os.Getenv("WEATHER_VERSION"), os.Getenv("WEATHER_TOOL")
	tools := []string{name + "_who", name + "_wait"}
	if more != "" {
		tools = append(tools, more)
	}
	list := func() (all []string) {
		for i, t := range tools {
			description := ""
			if text, err := os.ReadFile(os.Getenv("WEATHER_TEXT")); err == nil && i == 0 {
				description = fmt.Sprintf(`"description":%q,`, text)
			}
			all = append(all, `{"name":"`+t+`",`+description+`"inputSchema":{"type":"object"}}`)
		}
		return all
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
		result := `{"content":[{"type":"text","text":` + string(who) + `}]}`
		switch {
		case m.Method == "initialize":
			reply(m.ID,
				`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"weather","version":"1"}}`)
		case m.Method == "tools/list":
			reply(m.ID, `{"tools":[`+strings.Join(list(), ",")+`]}`)
		case m.Method == "tools/call" && m.Params.Name == name+"_wait":
			go func() {
				if !poll(waitTimeout,
					func() bool { _, err := os.Stat(m.Params.Arguments.Path); return err == nil }) {
					result = `{"content":[],"isError":true}`
				}
				reply(m.ID, result)
			}()
		case m.Method == "tools/call":
			reply(m.ID, result)
		default:
			reply(m.ID, `{}`)
		}
	}
}

func weather(name, version string) backend {
	b := helperBackend(name, "weather", "")
	// Differs from the backend's name, because values are masked in the log.
	b.Env["WEATHER_NAME"], b.Env["WEATHER_VERSION"] = name+"_", version
	return b
}

// editConfig changes the configuration like an editor: the file is replaced.
func (s *setup) editConfig(change func(doc map[string]any)) {
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
	s.replaceConfig(string(text))
}

// replaceConfig replaces the configuration file.
func (s *setup) replaceConfig(text string) {
	s.t.Helper()
	if err := os.WriteFile(s.config+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.config+".new", s.config); err != nil {
		s.t.Fatal(err)
	}
}

// backendEntry returns the entry of a backend in a configuration.
func backendEntry(doc map[string]any, name string) map[string]any {
	for _, b := range doc["backends"].([]any) {
		if b := b.(map[string]any); b["name"] == name {
			return b
		}
	}
	return nil
}

// addBackend adds a backend to a configuration; its processes get the marker.
func (s *setup) addBackend(doc map[string]any, b backend) {
	b.Env = maps.Clone(b.Env)
	b.Env[markerEnv] = string(s.marker)
	doc["backends"] = append(doc["backends"].([]any), b)
}

// A logReader reads the lines of a gateway's log, each once.
type logReader struct {
	t    testing.TB
	path string
	at   int64
	rest string
}

func (j *logReader) lines() []string {
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

// await returns the next line that contains all parts.
func (j *logReader) await(parts ...string) string {
	j.t.Helper()
	var found string
	var passed []string
	if !poll(waitTimeout, func() bool {
		lines := j.lines()
		for i, line := range lines {
			if !slices.ContainsFunc(parts,
				func(p string) bool { return !strings.Contains(line, p) }) {
				found = line
				j.unread(lines[i+1:])
				return true
			}
		}
		passed = append(passed, lines...)
		return false
	}) {
		j.t.Fatalf("the log does not contain %q:\n%s", parts,
			strings.Join(passed[max(0, len(passed)-40):], ""))
	}
	return found
}

func (j *logReader) unread(lines []string) {
	for _, line := range lines {
		j.at -= int64(len(line))
	}
	j.at -= int64(len(j.rest))
	j.rest = ""
}

func (c *rawClient) logReader() *logReader { return &logReader{t: c.t, path: c.stderr} }

const logReloaded = `msg="configuration reloaded"`

// serveHTTP starts the gateway as an HTTP server, and returns its process and URL.
func (s *setup) serveHTTP() (gw *rawClient, url string) {
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

// A callLoad calls backends all the time.
type callLoad struct {
	t       testing.TB
	tools   []string
	calls   atomic.Int64
	changes []atomic.Int64 // list_changed notifications received by each client
	longest atomic.Int64

	mu   sync.Mutex
	pids map[string]map[string]bool // by backend

	stop context.CancelFunc
	done sync.WaitGroup
}

// startLoad has clients call these tools, NAME_who each, until end. A response that is an error
// or that belongs to another backend fails the test.
func startLoad(t testing.TB, url string, clients int, names ...string) *callLoad {
	t.Helper()
	c := &callLoad{t: t, changes: make([]atomic.Int64, clients), pids: map[string]map[string]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	t.Cleanup(func() { c.end() })
	for _, n := range names {
		c.tools = append(c.tools, n+"_who")
		c.pids[n] = map[string]bool{}
	}
	for i := range clients {
		responses := make(chan message, 1)
		// The client must list, as clients do: without a list there are no notifications.
		var listChanged atomic.Bool
		listChanged.Store(true)
		v, err := dialStreams(t.Context(), &http.Client{Timeout: waitTimeout}, url, `{}`, nil)
		if err == nil {
			v.onMessage = func(stream string, m message) {
				if m.Method == "notifications/tools/list_changed" {
					c.changes[i].Add(1)
					listChanged.Store(true)
				} else if m.Method == "" {
					responses <- m
				}
			}
			v.client.Timeout = 0
			err = v.openStandalone()
		}
		if err != nil {
			t.Fatal(err)
		}
		c.done.Go(func() {
			defer v.deleteSession()
			last := map[string]int{}
			for n := 0; ctx.Err() == nil; n++ {
				if listChanged.Swap(false) {
					if err := v.post("x",
						fmt.Sprintf(`{"jsonrpc":"2.0","id":"list %d","method":"tools/list"}`,
							n)); err != nil {
						t.Errorf("list %d of client %d: %v", n, i, err)
						return
					}
					<-responses
				}
				name := names[n%len(names)]
				began := time.Now()
				err := v.post("x",
					fmt.Sprintf(
						`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s_who"}}`, n+1, name))
				if err != nil {
					t.Errorf("call %d of client %d, at %s: %v", n, i, name, err)
					return
				}
				c.check(<-responses, name, last)
				took := int64(time.Since(began))
				for old := c.longest.Load(); took > old &&
					!c.longest.CompareAndSwap(old, took); old = c.longest.Load() {
				}
				c.calls.Add(1)
			}
		})
	}
	return c
}

var weatherResponse = regexp.MustCompile(`"text":"(\w+) (\d+) (\d+)"`)

func (c *callLoad) check(m message, name string, last map[string]int) {
	a := weatherResponse.FindSubmatch(m.Result)
	if a == nil || string(a[1]) != name {
		c.t.Errorf("%s: %s", name, m.Raw)
		return
	}
	version, _ := strconv.Atoi(string(a[2]))
	if version < last[name] {
		c.t.Errorf("%s: version %d after %d", name, version, last[name])
	}
	last[name] = version
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[name][string(a[3])] = true
}

// end stops the calls, and returns for each backend how many processes have responded.
func (c *callLoad) end() map[string]int {
	c.stop()
	c.done.Wait()
	n := map[string]int{}
	for name, pids := range c.pids {
		n[name] = len(pids)
	}
	return n
}
