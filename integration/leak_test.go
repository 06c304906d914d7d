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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mcpgateway/internal/config"
)

// TestPROC_01_SessionsLeaveNothing opens, uses and ends a great many sessions, ten times over. After each round there are as
// many goroutines, open files, processes and sessions at the backends as before all, and after the last there is hardly
// more on the heap than after the first.
//
// Not parallel: it counts what is in this process.
func TestPROC_01_SessionsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Run("shared stdio, HTTP", func(t *testing.T) {
		site := newTalkerSite(t)
		server := httptest.NewServer(site)
		t.Cleanup(server.Close) // after the gateway has hung up
		n := &nothing{t: t, site: site, tools: []string{"echo", "site__echo"}, news: []string{stdioNews, siteNews}}
		n.left(1000, of(actor("talker", "talker", ""), "shared"), config.Backend{Name: "site", URL: server.URL})
	})
	t.Run("stdio of each session's own", func(t *testing.T) {
		n := &nothing{t: t, tools: []string{"echo"}, news: []string{stdioNews}}
		n.left(50, of(actor("talker", "talker", ""), "session"))
	})
}

// nothing is what must be left.
type nothing struct {
	t     testing.TB
	in    *inside
	site  *talkerSite // may be nil
	tools []string    // each session calls them all
	news  []string    // and some subscribe to these

	updates atomic.Int64 // that were heard
	late    atomic.Int64 // sessions whose client was too slow
}

const rounds = 10

// idle is how long a session is kept whose client has vanished.
const idle = time.Second

// left runs the rounds with these backends.
func (n *nothing) left(sessions int, list ...config.Backend) {
	n.in = newInside(n.t, insideOptions{idle: idle}, list...)
	began := time.Now()
	before := n.level()
	var first, last level
	for round := range rounds {
		n.round(sessions)
		if last = n.settled(before); round == 0 {
			first = last
		}
	}
	grown := float64(last.heap-first.heap) / float64((rounds-1)*sessions)
	n.t.Logf("%d sessions, %d times: %v; before %v, after the first round %v, after the last %v: %.0f bytes of heap per session; updates heard: %d; late: %d",
		sessions, rounds, time.Since(began).Round(time.Millisecond), before, first, last, grown, n.updates.Load(), n.late.Load())
	if most := 64.0; sessions >= 1000 && grown > most {
		n.t.Errorf("the heap grows by %.0f bytes per session", grown)
	}
	if late := n.late.Load(); late > int64(rounds*sessions/10) {
		n.t.Errorf("%d clients were silent for more than %v: too many for this to show anything", late, idle)
	}
	if n.updates.Load() == 0 {
		n.t.Error("no session heard of an update")
	}
}

// A level is what there is at one moment.
type level struct {
	goroutines, files, processes, sessions int
	heap                                   int64
}

func (l level) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %d processes, %d KiB", l.goroutines, l.files, l.processes, l.heap>>10)
}

func (n *nothing) level() level {
	l := level{goroutines: runtime.NumGoroutine(), processes: len(n.in.mark.processes())}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.files = len(files)
	}
	if n.site != nil {
		l.sessions = n.site.count()
	}
	return l
}

// settled waits until there is no more than before.
func (n *nothing) settled(before level) level {
	n.t.Helper()
	const slack = 4 // the runtime's own come and go
	var now level
	ok := poll(patience, func() bool {
		now = n.level()
		return now.goroutines <= before.goroutines+slack && now.files <= before.files+slack &&
			now.processes <= before.processes && now.sessions <= before.sessions
	})
	if !ok {
		var stacks strings.Builder
		pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		n.t.Fatalf("%d sessions are left at the backend, and %v; before there were %v\n%.20000s", now.sessions, now, before, &stacks)
	}
	runtime.GC()
	runtime.GC() // the second takes what finalizers let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	now.heap = int64(m.HeapAlloc)
	return now
}

// round opens, uses and ends the sessions, some at a time.
func (n *nothing) round(sessions int) {
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
				case errors.Is(err, errNoSession) && time.Since(began) > idle:
					n.late.Add(1) // on a busy machine it can be silent for longer than a session is kept
				case err != nil:
					n.t.Errorf("session %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

// session is one of them.
func (n *nothing) session(client *http.Client, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var failure error
	updated := make(chan struct{}, 100)
	v, err := visit(ctx, client, n.in.url, `{"roots":{}}`, func(_ string, m message) {
		switch {
		case m.Error != nil:
			failure = fmt.Errorf("%s", m.Raw) // on the goroutine that posts
		case m.Method == "notifications/resources/updated":
			n.updates.Add(1)
			select {
			case updated <- struct{}{}:
			default:
			}
		}
	})
	defer v.vanish()
	if err != nil {
		return err
	}
	requests := []string{`"method":"tools/list"`}
	for _, tool := range n.tools {
		requests = append(requests, `"method":"tools/call","params":{"name":"`+tool+`"}`)
	}
	listens, subscribes := i%4 == 0, i%8 < 3
	if subscribes {
		requests = append(requests, `"method":"resources/subscribe","params":{"uri":"`+n.news[i/8%len(n.news)]+`"}`)
	}
	if listens {
		if err := v.listen(); err != nil {
			return err
		}
	}
	for id, r := range requests {
		if err := v.post(itoa(int64(id+1)), `{"jsonrpc":"2.0","id":`+itoa(int64(id+1))+`,`+r+`}`); err != nil || failure != nil {
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
		return nil // it vanishes
	}
	return v.leave()
}
