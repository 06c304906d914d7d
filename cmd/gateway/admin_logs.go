package main

import (
	"context"
	"strings"
	"time"

	"mcpgateway/internal/activity"
	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver"
	"mcpgateway/internal/logging"
)

// adminLogs shows lines of the log.
type adminLogs struct{ *adminService }

// Logs implements adminserver.LogSource.
func (a adminLogs) Logs(f adminserver.LogFilter) []adminapi.LogEntry {
	return a.entries(a.lines.Lines(lineFilter(f)), f, f.Limit)
}

// ofCall returns the lines about the backend of a call, from its begin to its end.
func (a adminLogs) ofCall(c *activity.CallRecord) []adminapi.LogEntry {
	if c.Backend == "" {
		return []adminapi.LogEntry{}
	}
	f := logging.LineFilter{Backends: []string{c.Backend}, From: c.Started, Last: maxCallLogs}
	if c.Ended {
		f.To = c.Started.Add(c.Queued + c.Dur)
	}
	return a.entries(a.lines.Lines(f), adminserver.LogFilter{}, maxCallLogs)
}

// maxCallLogs bounds the lines that are shown with a call.
const maxCallLogs = 200

func lineFilter(f adminserver.LogFilter) logging.LineFilter {
	return logging.LineFilter{Backends: f.Backends, From: f.Since}
}

// entries converts the last lines that have the level of f.
func (a adminLogs) entries(
	lines []logging.LogLine, f adminserver.LogFilter, limit int,
) []adminapi.LogEntry {
	all := make([]adminapi.LogEntry, 0, min(len(lines), limit))
	least, _ := logging.ParseLevel(f.Level) // validated by adminserver
	for _, l := range lines {
		if f.Level == "" || l.Level >= least {
			all = append(all, adminapi.LogEntry{
				Time: l.Time, Level: strings.ToLower(l.Level.String()), Backend: l.Backend,
				Message: a.mask.String(l.Message), Attrs: a.mask.String(l.Attrs),
			})
		}
	}
	return all[max(len(all)-limit, 0):]
}

// A logBatch are lines that have arrived, and the number of those that were lost before them.
type logBatch struct {
	lines []logging.LogLine
	lost  int
}

// follow sends the lines that f selects until ctx is done. The first batch has the lines that are
// in memory. It may be empty.
func (a adminLogs) follow(
	ctx context.Context, f adminserver.LogFilter, batches chan<- logBatch,
) {
	if f.Limit == 0 && f.Since.IsZero() {
		f.Since = time.Now()
	}
	follower := a.lines.Follow(lineFilter(f))
	defer follower.Close()
	for {
		lines, lost, err := follower.Next(ctx)
		if err != nil {
			return
		}
		select {
		case batches <- logBatch{lines, lost}:
		case <-ctx.Done():
			return
		}
	}
}
