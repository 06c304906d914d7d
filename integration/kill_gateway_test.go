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

// held is how many calls are at a backend when TestKillNineOfABackendUnderLoad kills it.
const held = 16

// A backend that is killed under load costs the calls that are at it, at once and with a reason, and nobody anything
// else: the other backends answer all of theirs, and it is back after the first pause. What was measured is printed;
// what is asserted leaves room for a busy machine.
func TestKillNineOfABackendUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	k := &killing{t: t, notes: make(map[string]string)}
	var backends []backend
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		k.names, k.notes[name] = append(k.names, name), filepath.Join(t.TempDir(), name)
		backends = append(backends, actor(name, "mirror", k.notes[name]))
	}
	k.setup = newSetup(t, map[string]any{"catalog": map[string]any{"prefix": "always", "wait": "30s"}}, backends...)
	k.url = k.setup.listen()
	end := k.load()

	var failed, back []time.Duration
	for _, victim := range k.names { // each once: who dies again and again is started again more slowly
		k.victim.Store(&victim)
		ended := make(chan ending, held)
		for range held {
			go func() { ended <- k.hold(victim) }()
		}
		k.awaitHeld(victim, held)
		began := time.Now()
		if err := syscall.Kill(k.pid(victim), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for range held {
			e := <-ended
			if !strings.Contains(e.answer, `"code":-32603`) || !strings.Contains(e.answer, "outcome unknown") {
				t.Errorf("a call at %s: %s", victim, e.answer)
			}
			failed = append(failed, e.at.Sub(began))
		}
		if answer := k.dial().call(victim + "__request"); !strings.Contains(answer, `"result"`) {
			t.Errorf("%s: the call after the kill: %s", victim, answer)
		}
		back = append(back, time.Since(began))
	}
	end()
	slices.Sort(failed)
	slices.Sort(back)
	t.Logf("%d backends were killed: the calls at one ended after %v (median), %v (worst); it answered again after %v, %v",
		len(back), failed[len(failed)/2], failed[len(failed)-1], back[len(back)/2], back[len(back)-1])
	if worst := failed[len(failed)-1]; worst > time.Second {
		t.Errorf("a call at a backend that was killed took %v to fail", worst)
	}
	if typical := back[len(back)/2]; typical > 2*time.Second {
		t.Errorf("a backend that was killed was back after %v", typical)
	}
}

// A killing is a gateway whose backends are killed, and the load on it.
type killing struct {
	t      *testing.T
	setup  *setup
	url    string
	names  []string
	notes  map[string]string // what each backend read
	victim atomic.Pointer[string]
}

type ending struct {
	answer string
	at     time.Time
}

// A lasting is a session that calls may be made in from any goroutine.
type lasting struct {
	*rawHTTP
}

func (k *killing) dial() lasting {
	c := lasting{dialHTTP(k.t, k.url, "2025-11-25")}
	c.client.Transport = &http.Transport{MaxIdleConnsPerHost: held}
	return c
}

// call returns the whole body of the answer, or what went wrong.
func (c lasting) call(tool string) string {
	id := strconv.FormatInt(c.nextID.Add(1), 10)
	res, err := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`)
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

func (k *killing) hold(name string) ending {
	answer := k.dial().call(name + "__hold")
	return ending{answer, time.Now()}
}

// awaitHeld waits until a backend has read so many calls of hold since it was first started.
func (k *killing) awaitHeld(name string, calls int) {
	k.t.Helper()
	if !poll(patience, func() bool {
		text, _ := os.ReadFile(k.notes[name])
		return bytes.Count(text, []byte(`"name":"hold"`)) >= calls
	}) {
		k.t.Fatalf("%s has not read %d calls", name, calls)
	}
}

// pid returns that of a backend's process: it has the notes in its environment, and is not the shell that holds its
// group.
func (k *killing) pid(name string) int {
	k.t.Helper()
	entry := notesEnv + "=" + k.notes[name]
	for _, p := range k.setup.mark.processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if slices.Contains(strings.Split(string(env), "\x00"), entry) && strings.Contains(p.args, filepath.Base(os.Args[0])) && !strings.Contains(p.args, "sh -c") {
			return p.pid
		}
	}
	k.t.Fatalf("no process of %s: %v", name, k.setup.mark.processes())
	return 0
}

// load has four sessions call all backends one after the other, until end is called. Every call to a backend that is
// not being killed must succeed.
func (k *killing) load() (end func()) {
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
				before, began := k.victim.Load(), time.Now()
				answer := c.call(name + "__request")
				took := time.Since(began)
				spared := name != *cmp.Or(before, new(string)) && name != *cmp.Or(k.victim.Load(), new(string))
				mu.Lock()
				calls++
				if spared {
					slowest = max(slowest, took)
				}
				if !strings.Contains(answer, `"result"`) {
					lost++
					if spared {
						k.t.Errorf("%s, which was not killed: %s", name, answer)
					}
				}
				mu.Unlock()
			}
		})
	}
	return func() {
		over.Store(true)
		all.Wait()
		k.t.Logf("load: %d calls, %d of them lost with the backend they were at; the slowest at one that was not killed: %v", calls, lost, slowest)
	}
}
