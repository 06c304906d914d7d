package main

import (
	"strings"
	"time"

	"mcpgateway/internal/activity"
	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/audit"
	"mcpgateway/internal/callid"
)

// adminCalls shows calls.
type adminCalls struct{ *adminService }

// Calls implements adminserver.CallSource.
func (a adminCalls) Calls(f adminapi.CallFilter) adminapi.CallList {
	now := time.Now()
	list := adminapi.CallList{InFlight: []adminapi.CallStatus{}, Recent: []adminapi.CallStatus{}}
	for _, c := range a.activity.InFlight() {
		if selectsCall(&f, &c, now) {
			list.InFlight = append(list.InFlight, a.callStatus(&c, now))
		}
	}
	for _, c := range a.activity.Recent(f.Limit, func(c *activity.CallRecord) bool {
		return selectsCall(&f, c, now)
	}) {
		list.Recent = append(list.Recent, a.callStatus(&c, now))
	}
	return list
}

// Call implements adminserver.CallSource.
func (a adminCalls) Call(id string) (adminapi.CallDetail, bool) {
	seq, ok := callid.Parse(id)
	if !ok {
		return adminapi.CallDetail{}, false
	}
	c, ok := a.activity.Find(seq)
	return adminapi.CallDetail{CallStatus: a.callStatus(&c, time.Now()),
		Logs: adminLogs(a).ofCall(&c)}, ok
}

// selectsCall reports whether a filter selects a call. Name is the exposed name, or that at the
// backend, and Client may be without the version.
func selectsCall(f *adminapi.CallFilter, c *activity.CallRecord, now time.Time) bool {
	is := func(want, is string) bool { return want == "" || want == is }
	client, _, _ := strings.Cut(c.Client, "/")
	took := now.Sub(c.Started)
	if c.Ended {
		took = c.Queued + c.Dur
	}
	return is(f.Backend, c.Backend) && (is(f.Name, c.Name) || is(f.Name, c.Original)) &&
		is(f.Session, c.Session) && (is(f.Client, c.Client) || is(f.Client, client)) &&
		is(f.Principal, c.Principal) &&
		(f.Outcome == "" || c.Ended && is(f.Outcome, string(c.Outcome))) && took >= f.Slower
}

// callStatus converts a call.
func (a adminCalls) callStatus(c *activity.CallRecord, now time.Time) adminapi.CallStatus {
	mask := a.mask.String
	s := adminapi.CallStatus{
		Call: callid.Text(c.Seq),
		CallClient: adminapi.CallClient{
			Session: c.Session, Client: mask(c.Client), Principal: c.Principal,
			ID: mask(c.ClientID),
		},
		CallRoute: adminapi.CallRoute{
			Method: c.Method, Name: mask(audit.BareURI(c.Name)), Backend: c.Backend,
			BackendName: mask(audit.BareURI(c.Original)),
		},
		Started: c.Started, BytesIn: c.BytesIn,
	}
	if !c.Ended {
		s.Age = milliseconds(uint64(max(now.Sub(c.Started).Microseconds(), 0)))
		return s
	}
	s.End = &adminapi.CallResult{
		BackendID: mask(c.BackendID), Outcome: string(c.Outcome),
		IsError: activity.IsError(c.Outcome), Code: c.Code, Reason: mask(c.Reason),
		Confirmation: c.Confirmation, Queued: inMilliseconds(c.Queued), Dur: inMilliseconds(c.Dur),
		BytesOut: c.BytesOut,
	}
	return s
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
