package backends

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
)

// What a backend says fills the log at a bounded rate, whichever of its connections it comes by;
// how much is left out is told, and others have a rate of their own.
func TestWhatABackendSaysIsLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := mcptest.NewLog()
		says, other := spare(logger.With("backend", "a")), spare(logger.With("backend", "b"))
		own := says.With("session", "one")
		for range 5000 {
			says.Info("x")
			own.WithGroup("g").Info("x")
			says.Debug("x")
		}
		for range 500 {
			other.Info("y")
		}
		if n, m := len(log.Lines("msg=x")), len(log.Lines("msg=y")); n != 500 || m != 500 {
			t.Errorf("%d and %d records", n, m)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if lines := log.Lines("left out"); len(lines) != 1 || !strings.Contains(lines[0], "backend=a lost=14500 max=100") {
			t.Errorf("told %q", lines)
		}
		for range 1000 { // 1000 a second, for ten
			for range 10 {
				says.Info("z")
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n, told := len(log.Lines("msg=z")), len(log.Lines("left out")); n < 1000 || n > 1110 || told < 10 || told > 12 {
			t.Errorf("%d records, told %d times", n, told)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if told := len(log.Lines("left out")); told > 12 {
			t.Errorf("told %d times of nothing", told)
		}
	})
}
