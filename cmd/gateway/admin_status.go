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

// adminStatus makes the status of the gateway.
type adminStatus struct{ *adminService }

// Status implements adminserver.StatusSource.
func (a adminStatus) Status() adminapi.GatewayStatus {
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
		Sessions:      a.sessions(),
		Totals:        a.callTotals(&total, inFlight),
		Audit:         a.auditStatus(),
	}
	if url := a.adminURL.Load(); url != nil {
		s.Gateway.Admin = *url
	}
	for _, b := range a.backends.Status() {
		c := counters[b.Name]
		s.Backends = append(s.Backends, a.backendStatus(&b, a.callTotals(&c, byBackend[b.Name])))
	}
	return s
}

func (a adminStatus) auditStatus() adminapi.AuditStatus {
	journal := a.journal.Status()
	s := adminapi.AuditStatus{
		Written: journal.Written, Lost: journal.Lost, Queued: journal.Queued,
		Lag: float64(journal.Lag) / float64(time.Millisecond),
	}
	if a.journal.file == nil {
		return s
	}
	f := a.journal.file.Status()
	s.File = &adminapi.AuditFileStatus{
		Path: absolutePath(f.Path), Size: f.Size, Former: f.Former, FormerSize: f.FormerSize,
	}
	if f.Problem != "" {
		s.File.Problem = &adminapi.TimedText{Time: f.ProblemFrom, Text: a.mask.String(f.Problem)}
	}
	return s
}

func (a adminStatus) configurationState() adminapi.ConfigurationState {
	file := a.reloader.File()
	return adminapi.ConfigurationState{
		File:        absolutePath(file.Source),
		Problem:     a.mask.String(strings.Join(file.Problems, "\n")),
		NeedRestart: file.NeedRestart,
		Differs:     file.HasChanged(),
	}
}

func (a adminStatus) backendStatus(
	b *backends.Status, calls adminapi.CallTotals,
) adminapi.BackendStatus {
	s := adminapi.BackendStatus{
		Name: b.Name, State: string(b.State), Healthy: isWell(b), NextTry: b.NextTry,
		Settled: b.Settled, Server: a.mask.String(b.Server), Revision: b.Revision,
		Lists: listCounts(b.Counts),
		Calls: calls, Since: b.Since, Restarts: b.Restarts, Reason: a.errorText(b.Err),
		ConnectionStatus: adminapi.ConnectionStatus{
			Connections: b.Connections, Queued: b.Queued, PIDs: b.PIDs,
		},
	}
	if b.LastError != nil {
		s.LastError = &adminapi.TimedText{Time: b.LastErrorAt, Text: a.errorText(b.LastError)}
	}
	for _, i := range b.Instances {
		s.Instances = append(s.Instances, adminapi.InstanceStatus{
			Principal: i.Principal, State: string(i.State), Since: i.Since, Restarts: i.Restarts,
			Reason: a.errorText(i.Err), NextTry: i.NextTry,
		})
	}
	return s
}

func listCounts(n [catalog.NumKinds]int) adminapi.ListCounts {
	return adminapi.ListCounts{Tools: n[catalog.Tools], Prompts: n[catalog.Prompts],
		Resources: n[catalog.Resources], Templates: n[catalog.Templates]}
}

// sessions returns the connected clients.
func (a adminStatus) sessions() []adminapi.SessionStatus {
	all := []adminapi.SessionStatus{}
	for _, c := range a.gateway.Clients() {
		all = append(all, adminapi.SessionStatus{
			ID: c.ID, Stateless: c.Stateless, Client: a.mask.String(c.Name),
			Principal: c.Principal, Profiles: c.Profiles, Transport: string(c.Transport),
			Revision: c.Revision, Started: c.Since, LastRequest: c.LastRequest,
			InFlight: c.InFlight,
		})
	}
	return all
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
func (a adminStatus) callTotals(c *activity.Counters, inFlight int) adminapi.CallTotals {
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
