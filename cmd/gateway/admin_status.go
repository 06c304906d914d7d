package main

import (
	"os"
	"strings"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/activity"
	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/callid"
)

// Status implements adminserver.StatusSource.
func (a *adminService) Status() adminapi.GatewayStatus {
	byBackend, _ := a.activity.InFlightCounts()
	total := a.activity.Total()
	counters := a.activity.Backends()
	inFlight := 0
	for _, n := range byBackend {
		inFlight += n
	}
	s := adminapi.GatewayStatus{
		Gateway: adminapi.GatewayInfo{
			ID: callid.Prefix(), PID: os.Getpid(), Version: version, Started: a.started,
			Stdio: a.servesStdio, URL: a.url,
		},
		Configuration: a.configurationState(),
		Backends:      []adminapi.BackendStatus{},
		Sessions:      []adminapi.SessionStatus{},
		Totals:        a.callTotals(&total, inFlight),
	}
	for _, b := range a.backends.Status() {
		c := counters[b.Name]
		s.Backends = append(s.Backends, a.backendStatus(&b, a.callTotals(&c, byBackend[b.Name])))
	}
	return s
}

func (a *adminService) configurationState() adminapi.ConfigurationState {
	file := a.reloader.File()
	return adminapi.ConfigurationState{
		File:        absolutePath(file.Source),
		Problem:     a.mask.String(strings.Join(file.Problems, "\n")),
		NeedRestart: file.NeedRestart,
		Differs:     file.HasChanged(),
	}
}

func (a *adminService) backendStatus(
	b *backends.Status, calls adminapi.CallTotals,
) adminapi.BackendStatus {
	s := adminapi.BackendStatus{
		Name: b.Name, State: string(b.State), Healthy: isWell(b), NextTry: b.NextTry,
		Settled: b.Settled, Server: a.mask.String(b.Server), Revision: b.Revision,
		Lists: adminapi.ListCounts{
			Tools: b.Counts[catalog.Tools], Prompts: b.Counts[catalog.Prompts],
			Resources: b.Counts[catalog.Resources], Templates: b.Counts[catalog.Templates],
		},
		Calls: calls,
	}
	if b.Err != nil {
		s.Reason = a.mask.String(b.Err.Error())
	}
	return s
}

// isWell reports whether nobody need do anything about a backend: it is ready, is starting, or is
// stopped on purpose or until somebody needs it.
func isWell(b *backends.Status) bool {
	switch b.State {
	case backends.Ready, backends.Disabled, backends.StoppedByUser:
		return true
	case backends.Starting, backends.Stopped:
		return b.Err == nil
	}
	return false
}

// callTotals converts counters.
func (a *adminService) callTotals(c *activity.Counters, inFlight int) adminapi.CallTotals {
	t := adminapi.CallTotals{
		Calls: c.Calls(), Errors: c.Errors(), InFlight: inFlight,
		BytesIn: c.BytesIn, BytesOut: c.BytesOut,
	}
	for i, n := range c.ByOutcome {
		if n > 0 {
			if t.Outcomes == nil {
				t.Outcomes = make(map[string]uint64)
			}
			t.Outcomes[string(activity.Outcomes[i])] = n
		}
	}
	if c.LastHour.Count > 0 {
		t.P50 = milliseconds(c.LastHour.Quantile(0.5))
		t.P99 = milliseconds(c.LastHour.Quantile(0.99))
	}
	if e := c.LastError; !e.Time.IsZero() {
		text := string(e.Outcome)
		if e.Reason != "" {
			text += ": " + a.mask.String(e.Reason)
		}
		t.LastError = &adminapi.TimedText{Time: e.Time, Text: text}
	}
	return t
}

// milliseconds converts microseconds.
func milliseconds(us uint64) *float64 {
	ms := float64(time.Duration(us)*time.Microsecond) / float64(time.Millisecond)
	return &ms
}
