package httpserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// maxReasons is the maximum number of reasons that are counted separately within
	// repeatPeriod.
	maxReasons = 32
	// repeatPeriod is the time during which repeated rejections for the same reason are counted
	// instead of logged.
	repeatPeriod = time.Minute
	// maxPath is the maximum number of logged bytes of a request path.
	maxPath = 100
)

// A rejectionLog logs rejected requests, so that an operator notices a client with a wrong
// address or somebody guessing tokens. The first rejection for a reason is logged at once.
// Further ones within repeatPeriod are counted and logged as one record, so that a flood cannot
// fill the log.
type rejectionLog struct {
	log *slog.Logger

	mu      sync.Mutex
	counted map[string]*repeats
	timer   *time.Timer // running while counted is not empty
}

// repeats counts the rejections for one reason that were not logged individually.
type repeats struct {
	level   slog.Level
	count   int
	client  string // address of the latest client
	summary string // method, path, status and reason of the latest request
}

// otherReasons is the key in counted of all reasons beyond maxReasons.
const otherReasons = ""

// note logs or counts a rejection. Rejections with status 5xx result from the state of the
// gateway and are logged where that is detected, except a loop, which is a configuration error.
func (f *rejectionLog) note(r *http.Request, herr *httpError) {
	if herr.status >= 500 && herr.status != http.StatusLoopDetected {
		return
	}
	level := slog.LevelInfo
	switch herr.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusLoopDetected:
		level = slog.LevelWarn
	}
	if !f.log.Enabled(r.Context(), level) {
		return
	}
	// The query is omitted: it may contain a session key.
	path := r.URL.Path
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "") + "…"
	}
	what := fmt.Sprintf("%.20s %s: %d %s", r.Method, path, herr.status, herr.err.Message)
	if f.count(herr.err.Message, repeats{level, 1, r.RemoteAddr, what}) {
		return
	}
	f.log.Log(r.Context(), level, "refused a client", "client", r.RemoteAddr, "err", what)
}

// count counts a rejection if one for the same reason was logged within repeatPeriod. It returns
// false if the caller has to log the rejection.
func (f *rejectionLog) count(reason string, one repeats) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.counted[reason]
	if known == nil && len(f.counted) >= maxReasons {
		reason = otherReasons
		known = f.counted[reason]
	}
	if known != nil {
		one.count += known.count
		*known = one
		return true
	}
	if f.counted == nil {
		f.counted = make(map[string]*repeats)
		f.timer = time.AfterFunc(repeatPeriod, f.flush)
	}
	one.count = 0
	f.counted[reason] = &one
	return false
}

// flush logs the counted rejections.
func (f *rejectionLog) flush() {
	f.mu.Lock()
	folded := f.counted
	f.counted = nil
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	for _, one := range folded {
		if one.count > 0 {
			f.log.Log(context.Background(), one.level, "refused clients further times",
				"records", one.count, "client", one.client, "err", one.summary)
		}
	}
}
