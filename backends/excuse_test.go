package backends_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
)

// excused returns what is said of a name that nobody has.
func (h *house) excused(name string) string {
	synctest.Wait()
	backend, err := h.WhyUnavailable(name)
	if err == nil {
		return ""
	}
	return backend + ": " + err.Error()
}

// An unknown tool of a backend that is down is excused in the words in which a call of a known one ends.
func TestAnUnknownToolIsExcusedLikeAKnownOne(t *testing.T) {
	inBrokenHouse(t, startErrors{"a": errors.New("exit 1")}, backends.Options{Backends: plain("a")}, func(t *testing.T, h *house) {
		time.Sleep(time.Minute)
		c, _ := h.call("a")
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if got := h.excused("a__t"); len(c.ends) != 1 || got != "a: "+c.ends[0] {
			t.Errorf("excused by %q, and a call ended with %q", got, c.ends)
		}
	})
}

// A name that a route once had says what has become of its backend.
func TestAToolOfABackendThatIsGoneIsExcused(t *testing.T) {
	inHouse(t, backends.Options{Backends: plain("one", "two")}, func(t *testing.T, h *house) {
		h.next("one").ServeStartup("t")
		h.next("two").ServeStartup("t")
		off := plain("two")[0]
		off.Enabled = false
		<-h.apply(change(off))
		for name, want := range map[string]string{
			"one__t": "one: " + removed,
			"two__t": "two: it is disabled in the configuration",
			"six__t": "",
			"one":    "",
		} {
			if got := h.excused(name); got != want {
				t.Errorf("%s is excused by %q, want %q", name, got, want)
			}
		}
	})
}
