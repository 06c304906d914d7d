//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// TestPROC_01_SessionsDoNotLeak opens, uses and ends a large number of sessions, ten times.
// After each round there are as many goroutines, open files, processes and sessions at the
// backends as before, and the heap after the last rounds is hardly larger than after the first.
//
// Not parallel: it counts resources of this process.
func TestPROC_01_SessionsDoNotLeak(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Run("shared stdio and HTTP", func(t *testing.T) {
		site := newAttributionHTTP(t)
		server := httptest.NewServer(site)
		t.Cleanup(server.Close) // runs after the gateway has disconnected
		n := &leakCheck{t: t, server: site, tools: []string{"echo", "site__echo"},
			resources: []string{stdioResource, httpResource}}
		n.run(1000, configBackend(helperBackend("attribution", "attribution", ""), "shared"),
			config.Backend{Name: "site", URL: server.URL})
	})
	t.Run("stdio per session", func(t *testing.T) {
		n := &leakCheck{t: t, tools: []string{"echo"}, resources: []string{stdioResource}}
		n.run(50, configBackend(helperBackend("attribution", "attribution", ""), "session"))
	})
}

// A leakCheck checks that sessions leave no resources behind.
type leakCheck struct {
	t         testing.TB
	in        *inProcess
	server    *attributionHTTP // may be nil
	tools     []string         // each session calls all of them
	resources []string         // some sessions subscribe to these

	updates     atomic.Int64 // updates received
	slowClients atomic.Int64 // sessions whose client was too slow
}

const leakRounds = 10

// idleTimeout is how long a session is kept after its client has disconnected.
const idleTimeout = time.Second

// run runs the rounds with these backends.
func (n *leakCheck) run(sessions int, list ...config.Backend) {
	n.in = newInProcess(n.t, inProcessOptions{idle: idleTimeout}, list...)
	began := time.Now()
	before := n.usage()
	var last resourceUsage
	var heap []int64 // after each round
	for range leakRounds {
		n.round(sessions)
		last = n.awaitRelease(before)
		heap = append(heap, last.heap)
	}
	// The heap grows in the first three rounds, and then varies by some hundred KiB, also over tens
	// of thousands of sessions, because timers keep what has ended for some seconds.
	const few = 3
	first, grown := slices.Max(heap[:few]), 0.0
	const most = 64.0
	released := poll(waitTimeout, func() bool {
		grown = float64(mcptest.LiveHeap()-first) / float64((leakRounds-few)*sessions)
		return grown <= most
	})
	n.t.Logf(
		"%d sessions, %d times: %v; before %v, after the last round %v; heap %v: %.0f bytes per session; updates received: %d; late: %d",
		sessions, leakRounds, time.Since(began).Round(time.Millisecond), before, last, heap, grown,
		n.updates.Load(), n.slowClients.Load())
	if sessions >= 1000 && !released {
		n.t.Errorf("the heap grows by %.0f bytes per session", grown)
	}
	if late := n.slowClients.Load(); late > int64(leakRounds*sessions/10) {
		n.t.Errorf("%d clients were silent for more than %v: too many for a valid result", late,
			idleTimeout)
	}
	if n.updates.Load() == 0 {
		n.t.Error("no session received an update")
	}
}

// resourceUsage is the usage at one moment.
type resourceUsage struct {
	goroutines, files, processes, sessions int
	heap                                   int64
}

func (l resourceUsage) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d processes, %d KiB", l.goroutines, l.files,
		l.processes, l.heap>>10)
}

func (n *leakCheck) usage() resourceUsage {
	l := resourceUsage{goroutines: runtime.NumGoroutine(), processes: len(n.in.marker.processes())}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.files = len(files)
	}
	if n.server != nil {
		l.sessions = n.server.count()
	}
	return l
}

// awaitRelease waits until usage is down to before.
func (n *leakCheck) awaitRelease(before resourceUsage) resourceUsage {
	n.t.Helper()
	const slack = 4 // for the runtime
	var now resourceUsage
	ok := poll(waitTimeout, func() bool {
		now = n.usage()
		return now.goroutines <= before.goroutines+slack && now.files <= before.files+slack &&
			now.processes <= before.processes && now.sessions <= before.sessions
	})
	if !ok {
		var stacks strings.Builder
		pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		n.t.Fatalf("%d sessions are left at the backend, and %v; before there were %v\n%.20000s",
			now.sessions, now, before, &stacks)
	}
	now.heap = mcptest.LiveHeap()
	return now
}

// round opens, uses and ends the sessions, some at a time.
func (n *leakCheck) round(sessions int) {
	n.t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	todo := make(chan int, sessions)
	for i := range sessions {
		todo <- i
	}
	close(todo)
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := range todo {
				began := time.Now()
				switch err := n.session(client, i); {
				case errors.Is(err, errNoSession) && time.Since(began) > idleTimeout:
					// On a busy machine it can be silent for longer than a session is kept.
					n.slowClients.Add(1)
				case err != nil:
					n.t.Errorf("session %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

// session opens, uses and ends one session.
func (n *leakCheck) session(client *http.Client, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	var failure error
	updated := make(chan struct{}, 100)
	v, err := dialStreams(ctx, client, n.in.url, `{"roots":{}}`, func(_ string, m message) {
		switch {
		case m.Error != nil:
			failure = fmt.Errorf("%s", m.Raw) // this runs on the goroutine of the POST
		case m.Method == "notifications/resources/updated":
			n.updates.Add(1)
			select {
			case updated <- struct{}{}:
			default:
			}
		}
	})
	defer v.disconnect()
	if err != nil {
		return err
	}
	requests := []string{`"method":"tools/list"`}
	for _, tool := range n.tools {
		requests = append(requests, `"method":"tools/call","params":{"name":"`+tool+`"}`)
	}
	listens, subscribes := i%4 == 0, i%8 < 3
	if subscribes {
		requests = append(requests, `"method":"resources/subscribe","params":{"uri":"`+
			n.resources[i/8%len(n.resources)]+`"}`)
	}
	if listens {
		if err := v.openStandalone(); err != nil {
			return err
		}
	}
	for id, r := range requests {
		if err := v.post(itoa(int64(id+1)),
			`{"jsonrpc":"2.0","id":`+itoa(int64(id+1))+`,`+r+`}`); err != nil || failure != nil {
			return fmt.Errorf("%s: %w, %v", r, err, failure)
		}
	}
	if listens && subscribes {
		select {
		case <-updated:
		case <-ctx.Done():
			return fmt.Errorf("no update")
		}
	}
	if i%10 == 3 {
		return nil // this client disconnects without ending its session
	}
	return v.deleteSession()
}
