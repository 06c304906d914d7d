package loglimit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
)

// The output of a backend is logged at a limited rate, over all of its connections; the number of
// dropped records is reported, and each backend has its own limit.
func TestBackendOutputIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := mcptest.NewLog()
		limited, other := New(logger.With("backend", "a")),
			New(logger.With("backend", "b"))
		own := limited.With("session", "one")
		for range 5000 {
			limited.Info("x")
			own.WithGroup("g").Info("x")
			limited.Debug("x")
		}
		for range 500 {
			other.Info("y")
		}
		if n, m := len(log.Lines("msg=x")), len(log.Lines("msg=y")); n != 500 || m != 500 {
			t.Errorf("%d and %d records", n, m)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if lines := log.Lines("log records dropped"); len(lines) != 1 ||
			!strings.Contains(lines[0], "backend=a lost=14500 bytes=1464500") {
			t.Errorf("reported %q", lines)
		}
		for range 1000 { // 1000 records a second, for ten seconds
			for range 10 {
				limited.Info("z")
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		// reports after 1, 2 and 4 seconds; the next would follow after 8 seconds
		if n, reports := len(log.Lines("msg=z")), len(log.Lines("log records dropped")); n < 1000 ||
			n > 1110 || reports != 3 {
			t.Errorf("%d records, reported %d times", n, reports)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if reports := len(log.Lines("log records dropped")); reports > 4 {
			t.Errorf("reported %d times without a change", reports)
		}
	})
}

// F-LOG-1: a backend that floods its stderr for a day leaves a bounded number of bytes in the log,
// and few records about dropped records. After the flood the output is logged again.
func TestBackendOutputIsBoundedInBytes_F_LOG_1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := mcptest.NewLog()
		limited := New(logger.With("backend", "a"))
		line := "stderr: " + strings.Repeat("x", 8<<10)
		size := func() (n int) {
			for _, line := range log.Lines("") {
				n += len(line)
			}
			return n
		}
		for range 24 * 3600 {
			for range 10 {
				limited.Info(line)
			}
			time.Sleep(time.Second)
		}
		if n := size(); n < 20<<20 || n > 26<<20 {
			t.Errorf("%d bytes in a day", n)
		}
		if reports := len(log.Lines("log records dropped")); reports < 24 || reports > 24+12 {
			t.Errorf("reported %d times", reports)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		before := len(log.Lines("stderr: "))
		for range 20 {
			limited.Info(line)
		}
		if n := len(log.Lines("stderr: ")) - before; n != 20 {
			t.Errorf("%d of 20 records are logged after three quiet hours", n)
		}
	})
}
