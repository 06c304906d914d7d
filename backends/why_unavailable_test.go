package backends_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
)

// whyUnavailable returns the error for an unknown name.
func (h *harness) whyUnavailable(name string) string {
	synctest.Wait()
	backend, err := h.WhyUnavailable(nil, name)
	if err == nil {
		return ""
	}
	return backend + ": " + err.Error()
}

// The explanation for an unknown tool of a backend that is down equals the error of a call of a
// known tool.
func TestWhyUnavailable_SameTextAsCalls(t *testing.T) {
	withFailingHarness(t, startErrors{"a": errors.New("exit 1")},
		backends.Options{Backends: legacyBackends("a")}, func(t *testing.T, h *harness) {
			time.Sleep(time.Minute)
			c, _ := h.call("a")
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if got := h.whyUnavailable("a__t"); len(c.results) != 1 || got != "a: "+c.results[0] {
				t.Errorf("explained by %q, but a call ended with %q", got, c.results)
			}
		})
}

// The explanation for a name that once had a route describes what happened to its backend.
func TestWhyUnavailable_RemovedBackend(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("one", "two")},
		func(t *testing.T, h *harness) {
			h.nextProcess("one").ServeStartup("t")
			h.nextProcess("two").ServeStartup("t")
			off := legacyBackends("two")[0]
			off.Enabled = false
			<-h.startApply(change(off))
			for name, want := range map[string]string{
				"one__t": "one: " + removed,
				"two__t": "two: it is disabled in the configuration",
				"six__t": "",
				"one":    "",
			} {
				if got := h.whyUnavailable(name); got != want {
					t.Errorf("%s is explained by %q, want %q", name, got, want)
				}
			}
		})
}
