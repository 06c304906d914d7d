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
	// maxReasons bounds the reasons of refusals that are counted apart within one repeatPeriod.
	maxReasons = 32
	// repeatPeriod is how long refusals for a reason that was logged are counted instead of logged.
	repeatPeriod = time.Minute
	// maxPath is how many bytes of the path of a refused request are logged.
	maxPath = 100
)

// rejectionLog logs requests that are refused, so that an operator sees a client that has a wrong
// address, or somebody who guesses tokens. The first refusal for a reason is logged at once. Those
// that follow within repeatPeriod are counted, and logged as one line: a flood does not fill the log.
type rejectionLog struct {
	log *slog.Logger

	mu      sync.Mutex
	counted map[string]*repeats
	timer   *time.Timer // runs while there is anything in folded
}

// A repeats is the refusals for one reason that were not logged one by one.
type repeats struct {
	level   slog.Level
	count   int
	client  string // of the last of them
	summary string // likewise: method, path, status and reason
}

// otherReasons is the key of the fold for the reasons beyond maxReasons.
const otherReasons = ""

// note logs a refusal, or counts it. A refusal with a status of 5xx is due to the state of the
// gateway, and is logged where that is found out; a loop is due to the configuration.
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
	// The query is left out: it may be the key to a session.
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

// repeats counts a refusal if one for the same reason was logged a short time ago.
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

// flush logs what was counted.
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
