package main

import (
	"testing"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/activity"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/protocol"
)

// Tools whose names are equal when the secrets in them are masked are counted together.
func TestMetricsMaskNamesAndLoseNoCall(t *testing.T) {
	r := activity.New()
	for _, tool := range []string{"read-secret-aaaaaaaa", "read-secret-bbbbbbbb", "write"} {
		c := &gateway.CallInfo{Seq: callid.Next(), Method: protocol.MethodToolsCall, Name: tool,
			Started: time.Now(), Route: catalog.Route{Backend: "docs", Original: tool}}
		r.Begin(c)
		r.Routed(c)
		c.Sent = c.Started
		r.End(c, gateway.Outcome{Kind: gateway.OK, Dur: time.Second})
	}
	a := &app{recorders: recorders{activity: r}}
	a.mask = logging.NewMask("secret-aaaaaaaa", "secret-bbbbbbbb")
	all := adminMetrics{adminStatus{&adminService{service: &service{app: a}}}}.Entries()
	var calls uint64
	for key, e := range all {
		calls += e.ByOutcome[0]
		if key.Name != "write" && e.Durations.Count != 2 {
			t.Errorf("%+v: %+v", key, e)
		}
	}
	if len(all) != 2 || calls != 3 {
		t.Errorf("%d calls of %d names", calls, len(all))
	}
}
