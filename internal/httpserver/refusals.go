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
	// maxReasons bounds the reasons of refusals that are counted apart within one foldTime.
	maxReasons = 32
	// foldTime is how long refusals for a reason that was logged are counted instead of logged.
	foldTime = time.Minute
	// maxPath is how many bytes of the path of a refused request are logged.
	maxPath = 100
)

// refusals logs requests that are refused, so that an operator sees a client that has a wrong
// address, or somebody who guesses tokens. The first refusal for a reason is logged at once. Those
// that follow within foldTime are counted, and logged as one line: a flood does not fill the log.
type refusals struct {
	log *slog.Logger

	mu     sync.Mutex
	folded map[string]*fold
	timer  *time.Timer // runs while there is anything in folded
}

// A fold is the refusals for one reason that were not logged one by one.
type fold struct {
	level  slog.Level
	count  int
	client string // of the last of them
	what   string // likewise: method, path, status and reason
}

// otherReasons is the key of the fold for the reasons beyond maxReasons.
const otherReasons = ""

// note logs a refusal, or counts it. A refusal with a status of 5xx is due to the state of the
// gateway, and is logged where that is found out; a loop is due to the configuration.
func (f *refusals) note(r *http.Request, no *refusal) {
	if no.status >= 500 && no.status != http.StatusLoopDetected {
		return
	}
	level := slog.LevelInfo
	switch no.status {
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
	what := fmt.Sprintf("%.20s %s: %d %s", r.Method, path, no.status, no.err.Message)
	if f.fold(no.err.Message, fold{level, 1, r.RemoteAddr, what}) {
		return
	}
	f.log.Log(r.Context(), level, "refused a client", "client", r.RemoteAddr, "err", what)
}

// fold counts a refusal if one for the same reason was logged a short time ago.
func (f *refusals) fold(reason string, one fold) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.folded[reason]
	if known == nil && len(f.folded) >= maxReasons {
		reason = otherReasons
		known = f.folded[reason]
	}
	if known != nil {
		one.count += known.count
		*known = one
		return true
	}
	if f.folded == nil {
		f.folded = make(map[string]*fold)
		f.timer = time.AfterFunc(foldTime, f.flush)
	}
	one.count = 0
	f.folded[reason] = &one
	return false
}

// flush logs what was counted.
func (f *refusals) flush() {
	f.mu.Lock()
	folded := f.folded
	f.folded = nil
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	for _, one := range folded {
		if one.count > 0 {
			f.log.Log(context.Background(), one.level, "refused clients further times",
				"records", one.count, "client", one.client, "err", one.what)
		}
	}
}
