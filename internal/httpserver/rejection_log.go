package httpserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/text"
	"mcpgateway/internal/wire"
)

const (
	// maxReasons is the maximum number of reasons that are counted separately within a
	// repeatPeriod.
	maxReasons = 32
	// repeatPeriod is the time during which repeated rejections for the same reason are counted
	// instead of logged.
	repeatPeriod = time.Minute
	// maxPath is the maximum number of logged bytes of a request path.
	maxPath = 100
)

// A rejectionLog logs rejected requests, so that an operator notices a client with a wrong address,
// or an attempt to guess tokens. The first rejection for a reason is logged at once. Further
// rejections within repeatPeriod are counted and logged as one record, so that a flood of requests
// cannot fill the log.
type rejectionLog struct {
	log        *slog.Logger
	onRejected func(info SessionInfo, m wire.Message, err *wire.Error) // Options.OnRejected

	mu      sync.Mutex
	counted map[string]*repeatCount
	timer   *time.Timer // runs while the map counted is not empty
}

// report calls [Options.OnRejected] for m or, if m is a batch, for each request in m.
func (l *rejectionLog) report(m wire.Message, info SessionInfo, err *wire.Error) {
	if l.onRejected == nil {
		return
	}
	if m.Kind() != wire.Batch {
		l.onRejected(info, m, err)
	}
	for _, text := range m.Elements() {
		if request, _ := wire.Parse(text); request.Kind() == wire.Request {
			l.onRejected(info, request, err)
		}
	}
}

// repeatCount counts the rejections for one reason that were not logged individually.
type repeatCount struct {
	level   slog.Level
	count   int
	client  string // address of the latest client
	summary string // method, path, status and reason of the latest request
}

// otherReasons is the key that all reasons after the first maxReasons share in the map counted.
const otherReasons = ""

// note logs or counts a rejection. who is the sender; nil = unknown. It ignores rejections with
// status 5xx, which result from the state of the gateway: overload and shutdown have log records of
// their own. A loop is an exception, because it is a configuration error.
func (l *rejectionLog) note(r *http.Request, who *principal.Principal, herr *httpError) {
	if herr.status >= 500 && herr.status != http.StatusLoopDetected {
		return
	}
	level := slog.LevelInfo
	switch herr.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusLoopDetected:
		level = slog.LevelWarn
	}
	if !l.log.Enabled(r.Context(), level) {
		return
	}
	// The query is omitted: it may contain a session key.
	path := text.Truncate(r.URL.Path, maxPath)
	summary := fmt.Sprintf("%.20s %s: %d %s", r.Method, path, herr.status, herr.err.Message)
	if l.count(herr.err.Message, repeatCount{level, 1, r.RemoteAddr, summary}) {
		return
	}
	l.log.Log(r.Context(), level, "request rejected",
		append(who.LogAttrs(), "client", r.RemoteAddr, "err", summary)...)
}

// count counts a rejection if a rejection for the same reason was logged within repeatPeriod. It
// returns false if the caller must log the rejection.
func (l *rejectionLog) count(reason string, latest repeatCount) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := l.counted[reason]
	if entry == nil && len(l.counted) >= maxReasons {
		reason = otherReasons
		entry = l.counted[reason]
	}
	if entry != nil {
		latest.count += entry.count
		*entry = latest
		return true
	}
	if l.counted == nil {
		l.counted = make(map[string]*repeatCount)
		l.timer = time.AfterFunc(repeatPeriod, l.flush)
	}
	latest.count = 0
	l.counted[reason] = &latest
	return false
}

// flush logs the counted rejections.
func (l *rejectionLog) flush() {
	l.mu.Lock()
	counted := l.counted
	l.counted = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	for _, entry := range counted {
		if entry.count > 0 {
			l.log.Log(context.Background(), entry.level, "further requests rejected",
				"records", entry.count, "client", entry.client, "err", entry.summary)
		}
	}
}
