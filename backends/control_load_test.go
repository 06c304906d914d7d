package backends_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
)

// Backends are restarted, stopped, started and changed by reloads at the same time, while calls are
// made. Each call ends once: with a response, or because the backend is stopped. No call of a
// backend that is only restarted is lost or refused. (Not in a bubble: see
// TestCONFIG_08_ChangesUnderLoad.)
func TestRestart_UnderLoad(t *testing.T) {
	all := append(legacyBackends("other", "passing", "each"), perSessionBackend("own"))
	all[2].Sharing = config.SharingSession
	f := &servers{started: make(map[string]int)}
	h := newHarness(t, backends.Options{Backends: all, Dial: f.dial})
	h.Start()
	for v := h.View(); len(exposed(v)) < len(all); v = h.View() {
		<-v.Changed
	}
	stop := make(chan struct{})
	var callers, changes sync.WaitGroup
	for i := range 4 {
		session := fmt.Sprint("s", i)
		h.OpenSession(session, nil, false)
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := all[(n+i)%len(all)].Name
				_, err := h.callOutcome(session, name, n%11 == 10)
				if err != nil && !(name == "passing" &&
					strings.HasSuffix(err.Error(), "gateway start passing starts it")) {
					t.Error(err)
				}
			}
		})
	}
	callers.Go(func() { // so that a drain does not wait for the next call
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				f.sendDelayed()
			}
		}
	})
	const rounds = 8
	for _, name := range []string{"other", "own", "each"} {
		changes.Go(func() {
			for range rounds {
				if err := h.control().Restart(t.Context(), name); err != nil &&
					!strings.Contains(err.Error(), "has replaced it") {
					t.Error(err)
				}
			}
		})
	}
	changes.Go(func() {
		for range rounds {
			if err := h.control().Stop(t.Context(), "passing"); err != nil {
				t.Error(err)
			}
			if err := h.control().Start(t.Context(), "passing"); err != nil {
				t.Error(err)
			}
		}
	})
	changes.Go(func() {
		for i := range rounds {
			next := append([]config.Backend{withEnv(all[0], fmt.Sprint(i))}, all[1:]...)
			<-h.startApply(change(next...))
		}
	})
	changes.Wait()
	close(stop)
	f.mu.Lock()
	f.prompt = true
	f.mu.Unlock()
	f.sendDelayed()
	callers.Wait()
	h.stop()
	<-h.done
	f.running.Wait()
	for _, c := range all {
		if f.started[c.Name] < rounds {
			t.Errorf("%s was started %d times", c.Name, f.started[c.Name])
		}
	}
}
