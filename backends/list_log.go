package backends

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"mcpgateway/catalog"
)

// Repeated failures of a list are logged at once, again after firstRelogPause, and then after
// pauses that double up to longestRelogPause.
const (
	firstRelogPause   = time.Minute
	longestRelogPause = time.Hour
)

// listFailures limits the log records about failures of a list. The zero value is that of a list
// without failures.
type listFailures struct {
	count int       // number of failures since the last record
	next  time.Time // time from which the next failure is logged
	pause time.Duration
}

// countFailure counts a failure of a list. It reports whether to log the failure, and the
// number of failures that the log record represents.
func (lr *listReader) countFailure(k catalog.Kind) (count int, log bool) {
	f := &lr.failures[k]
	f.count++
	now := time.Now()
	if now.Before(f.next) {
		return 0, false
	}
	if now.Sub(f.next) > f.pause {
		f.pause = 0 // the list has not failed for a while
	}
	f.pause = min(max(2*f.pause, firstRelogPause), longestRelogPause)
	f.next = now.Add(f.pause)
	count, f.count = f.count, 0
	return count, true
}

// maxLoggedChanges is the number of changed tools of one list that are logged individually.
const maxLoggedChanges = 20

// logChangedTools logs each tool whose definition differs from the last known definition, of this
// run or an earlier run: a person may have approved the tool by its description. A tool that was
// absent in between counts as the same tool. Definitions are identified by their hashes. Beyond
// maxLoggedChanges, tools are only counted. It does nothing if the tools are compared with the lock
// file, because Backend.logDeviations then logs changes.
func (lr *listReader) logChangedTools(known, read []catalog.Item) {
	if lr.b.lists.pins.isCompared() {
		return
	}
	if lr.toolHashes == nil || len(lr.toolHashes) > maxEntries {
		lr.toolHashes = make(map[string]string)
		for _, item := range known {
			lr.toolHashes[item.Original] = definitionHash(item.Raw())
		}
	}
	changed := 0
	for _, item := range read {
		was, now := lr.toolHashes[item.Original], definitionHash(item.Raw())
		lr.toolHashes[item.Original] = now
		if was == "" || was == now {
			continue
		}
		if changed++; changed <= maxLoggedChanges {
			lr.b.log.Warn("tool_changed: definition of a tool changed", "tool", item.Original,
				"was", was, "now", now)
		}
	}
	if more := changed - maxLoggedChanges; more > 0 {
		lr.b.log.Warn("tool_changed: definitions of further tools changed, not logged individually",
			"records", more)
	}
}

// definitionHash returns a hash that distinguishes a definition from others.
func definitionHash(definition []byte) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:8])
}

// logKey is the key for an entry's name in a log record.
func logKey(k catalog.Kind) string {
	if k == catalog.Tools {
		return "tool"
	}
	return "name"
}

// maxLoggedIssues bounds the issues that one call of logIssues logs individually; the others are
// counted.
const maxLoggedIssues = 20

// logIssues logs issues of a list and its entries, each issue once. Beyond maxLoggedIssues, issues
// are only counted. Suspicious entries that the filters do not permit are not logged.
func (lr *listReader) logIssues(k catalog.Kind, issues []catalog.Issue) {
	if len(lr.logged) > maxEntries {
		lr.logged = nil
	}
	unlogged := 0
	for _, f := range issues {
		if lr.logged[f] || f.Suspicious && !lr.b.filters.permitsIssue(k, f) {
			continue
		}
		if lr.logged == nil {
			lr.logged = make(map[catalog.Issue]bool)
		}
		lr.logged[f] = true
		if unlogged++; unlogged > maxLoggedIssues {
			continue
		}
		switch {
		case f.WholeList:
			lr.b.outputLog.Warn("null list treated as empty", "method", k.ListMethod())
		case f.Suspicious:
			lr.b.outputLog.Warn("entry listed unchanged; some clients may not accept it",
				logKey(k), f.Item, "err", f.Problem)
		case !f.Repaired:
			lr.b.outputLog.Warn("entry left out", logKey(k),
				f.Item, "err", f.Problem)
		default:
			lr.b.outputLog.Info("repaired entry", logKey(k), f.Item, "err", f.Problem)
		}
	}
	if more := unlogged - maxLoggedIssues; more > 0 {
		lr.b.outputLog.Warn("further entries with issues; see gateway check",
			"method", k.ListMethod(), "records", more)
	}
}
