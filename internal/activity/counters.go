package activity

import (
	"strings"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/audit"
	"mcpgateway/internal/protocol"
)

// Outcomes are all outcomes of calls, in the order of Counters.ByOutcome.
var Outcomes = [...]gateway.OutcomeKind{
	audit.OK, audit.ToolError, audit.RPCError, audit.Cancelled, audit.Timeout, audit.BackendLost,
	audit.NotRun, audit.Rejected, audit.InputRequired,
}

// IsError reports whether an outcome counts as an error: the client got neither a result without
// isError nor a question, and has not cancelled the call itself.
func IsError(o gateway.OutcomeKind) bool {
	switch o {
	case audit.OK, audit.Cancelled, audit.InputRequired:
		return false
	}
	return true
}

// Counters count the ended calls of the gateway, or of one backend, since the start.
type Counters struct {
	ByOutcome         [len(Outcomes)]uint64
	BytesIn, BytesOut uint64
	// LastHour has the durations, in microseconds, of the calls that were sent and that ended in
	// the last hour. A duration includes the time in queues.
	LastHour  Histogram
	LastError LastError
}

// Calls returns the number of calls.
func (c *Counters) Calls() (n uint64) {
	for _, of := range c.ByOutcome {
		n += of
	}
	return n
}

// Errors returns the number of calls whose outcome is an error.
func (c *Counters) Errors() (n uint64) {
	for i, of := range c.ByOutcome {
		if IsError(Outcomes[i]) {
			n += of
		}
	}
	return n
}

// A LastError is the end of the last call whose outcome was an error.
type LastError struct {
	Time    time.Time // zero = none
	Outcome gateway.OutcomeKind
	Reason  string // of the gateway; not masked
}

// outcomeIndex returns the index of an outcome in Outcomes.
func outcomeIndex(o gateway.OutcomeKind) int {
	for i, known := range Outcomes {
		if known == o {
			return i
		}
	}
	return len(Outcomes) - 1
}

// windowedCounts are Counters with the window that the last hour comes from.
type windowedCounts struct {
	Counters // without LastHour
	window   window
}

func (c *windowedCounts) snapshot(now time.Time) Counters {
	s := c.Counters
	s.LastHour = c.window.lastHour(now)
	return s
}

func (c *windowedCounts) add(call *CallRecord, ended time.Time, sent bool) {
	failed := IsError(call.Outcome)
	c.ByOutcome[outcomeIndex(call.Outcome)]++
	c.BytesIn += uint64(call.BytesIn)
	c.BytesOut += uint64(call.BytesOut)
	c.window.add(ended, failed, sent, call.Queued+call.Dur)
	if failed {
		c.LastError = LastError{ended, call.Outcome, call.Reason}
	}
}

// An EntryKey identifies the counters of a tool or prompt. Name is its name at the backend. It is
// "" for resources, because their URIs are not bounded, and for calls that were not routed.
type EntryKey struct{ Backend, Method, Name string }

// EntryCounters count the ended calls of a tool or prompt since the start.
type EntryCounters struct {
	ByOutcome         [len(Outcomes)]uint64
	Durations         Histogram // microseconds, of the calls that were sent
	BytesIn, BytesOut Histogram // bytes
}

// Merge adds the counts of other, which stays unchanged.
func (e *EntryCounters) Merge(other *EntryCounters) {
	for i, n := range other.ByOutcome {
		e.ByOutcome[i] += n
	}
	e.Durations.merge(&other.Durations)
	e.BytesIn.merge(&other.BytesIn)
	e.BytesOut.merge(&other.BytesOut)
}

// A counterTable has all counters. The zero value is empty.
type counterTable struct {
	total    windowedCounts
	backends map[string]*windowedCounts
	entries  map[EntryKey]*EntryCounters
}

const (
	totalPeriod   = time.Minute
	backendPeriod = 10 * time.Minute
)

func (a *counterTable) add(call *CallRecord, ended time.Time, sent bool) {
	a.total.add(call, ended, sent)
	a.backend(call.Backend).add(call, ended, sent)
	e := a.entry(call)
	e.ByOutcome[outcomeIndex(call.Outcome)]++
	if sent {
		e.Durations.Add(microseconds(call.Queued + call.Dur))
	}
	e.BytesIn.Add(uint64(call.BytesIn))
	e.BytesOut.Add(uint64(call.BytesOut))
}

func (a *counterTable) backend(name string) *windowedCounts {
	if c := a.backends[name]; c != nil {
		return c
	}
	if len(a.backends) >= maxBackends {
		if c := a.backends[Other]; c != nil {
			return c
		}
		name = Other
	}
	if a.backends == nil {
		a.backends = make(map[string]*windowedCounts)
	}
	c := &windowedCounts{window: window{width: backendPeriod}}
	a.backends[strings.Clone(name)] = c
	return c
}

func (a *counterTable) entry(call *CallRecord) *EntryCounters {
	key := EntryKey{Backend: call.Backend, Method: call.Method}
	if call.Backend != "" && call.Method != protocol.MethodResourcesRead {
		key.Name = call.Original
	}
	if e := a.entries[key]; e != nil {
		return e
	}
	if len(a.entries) >= maxEntries {
		key = EntryKey{Other, call.Method, Other}
		if e := a.entries[key]; e != nil {
			return e
		}
	}
	if a.entries == nil {
		a.entries = make(map[EntryKey]*EntryCounters)
	}
	e := new(EntryCounters)
	a.entries[key] = e
	return e
}
