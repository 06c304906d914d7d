//go:build linux

package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// heldCalls is the number of calls in flight at a backend when it is killed.
const heldCalls = 16

// Killing a backend under load fails the calls in flight at that backend, at once and with a
// reason, and nothing else: the other backends complete all of their calls, and the killed
// backend is back after the first backoff. The measured times are logged; the asserted limits
// leave room for a busy machine.
func TestBackendKilled_UnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	k := &killTest{t: t, notes: make(map[string]string)}
	var backends []backend
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		k.names, k.notes[name] = append(k.names, name), filepath.Join(t.TempDir(), name)
		backends = append(backends, helperBackend(name, "mirror", k.notes[name]))
	}
	k.setup = newSetup(t, map[string]any{"catalog": map[string]any{"prefix": "always",
		"wait": "30s"}}, backends...)
	k.url = k.setup.serveURL()
	end := k.load()

	var failed, back []time.Duration
	for _, victim := range k.names { // each once: repeated deaths increase the backoff
		k.target.Store(&victim)
		ended := make(chan timedResponse, heldCalls)
		for range heldCalls {
			go func() { ended <- k.callHold(victim) }()
		}
		k.awaitHeld(victim, heldCalls)
		began := time.Now()
		if err := syscall.Kill(k.pid(victim), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for range heldCalls {
			e := <-ended
			if !strings.Contains(e.body, `"code":-32603`) ||
				!strings.Contains(e.body, "outcome unknown") {
				t.Errorf("a call at %s: %s", victim, e.body)
			}
			failed = append(failed, e.at.Sub(began))
		}
		if body := k.dial().call(victim + "__request"); !strings.Contains(body, `"result"`) {
			t.Errorf("%s: call after the kill: %s", victim, body)
		}
		back = append(back, time.Since(began))
	}
	end()
	slices.Sort(failed)
	slices.Sort(back)
	t.Logf(
		"%d backends killed: calls failed after %v (median), %v (worst); the backend was back after %v, %v",
		len(back), failed[len(failed)/2], failed[len(failed)-1], back[len(back)/2],
		back[len(back)-1])
	if worst := failed[len(failed)-1]; worst > time.Second {
		t.Errorf("a call at a killed backend failed after %v", worst)
	}
	if typical := back[len(back)/2]; typical > 2*time.Second {
		t.Errorf("a killed backend was back after %v", typical)
	}
}

// A killTest has a gateway whose backends are killed, and the load on it.
type killTest struct {
	t      *testing.T
	setup  *setup
	url    string
	names  []string
	notes  map[string]string // file with the messages that each backend read
	target atomic.Pointer[string]
}

type timedResponse struct {
	body string
	at   time.Time
}

// A concurrentSession allows calls from any goroutine.
type concurrentSession struct {
	*rawHTTP
}

func (k *killTest) dial() concurrentSession {
	c := concurrentSession{dialHTTP(k.t, k.url, "2025-11-25")}
	c.client.Transport = &http.Transport{MaxIdleConnsPerHost: heldCalls}
	return c
}

// call returns the whole body of the response, or the error.
func (c concurrentSession) call(tool string) string {
	id := strconv.FormatInt(c.nextID.Add(1), 10)
	res, err := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":`+id+
		`,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func (k *killTest) callHold(name string) timedResponse {
	body := k.dial().call(name + "__hold")
	return timedResponse{body, time.Now()}
}

// awaitHeld waits until a backend has read this number of calls of hold since its first start.
func (k *killTest) awaitHeld(name string, calls int) {
	k.t.Helper()
	if !poll(waitTimeout, func() bool {
		text, _ := os.ReadFile(k.notes[name])
		return bytes.Count(text, []byte(`"name":"hold"`)) >= calls
	}) {
		k.t.Fatalf("%s has not read %d calls", name, calls)
	}
}

// pid returns the process id of a backend: the process that has the notes file in its
// environment and is not the watchdog of the process group.
func (k *killTest) pid(name string) int {
	k.t.Helper()
	entry := notesEnv + "=" + k.notes[name]
	for _, p := range k.setup.marker.processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if slices.Contains(strings.Split(string(env), "\x00"), entry) &&
			strings.Contains(p.args, filepath.Base(os.Args[0])) &&
			!strings.Contains(p.args, "sh -c") {
			return p.pid
		}
	}
	k.t.Fatalf("no process of %s: %v", name, k.setup.marker.processes())
	return 0
}

// load has four sessions call all backends in turn, until end is called. Every call to a backend
// that is not being killed must succeed.
func (k *killTest) load() (end func()) {
	var over atomic.Bool
	var all sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	calls, lost := 0, 0
	for range 4 {
		c := k.dial()
		all.Go(func() {
			for i := 0; !over.Load(); i++ {
				name := k.names[i%len(k.names)]
				before, began := k.target.Load(), time.Now()
				body := c.call(name + "__request")
				took := time.Since(began)
				otherBackend := name != *cmp.Or(before, new(string)) &&
					name != *cmp.Or(k.target.Load(), new(string))
				mu.Lock()
				calls++
				if otherBackend {
					slowest = max(slowest, took)
				}
				if !strings.Contains(body, `"result"`) {
					lost++
					if otherBackend {
						k.t.Errorf("%s, which was not killed: %s", name, body)
					}
				}
				mu.Unlock()
			}
		})
	}
	return func() {
		over.Store(true)
		all.Wait()
		k.t.Logf("load: %d calls, %d lost at killed backends; slowest call at another backend: %v",
			calls, lost, slowest)
	}
}
