package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// refusedRequest is the handler of a request of a backend that must be refused.
type refusedRequest struct {
	t      *testing.T
	method string
	done   chan struct{}
}

func (r refusedRequest) OnProgress(wire.Message) {}

func (r refusedRequest) OnResponse(m wire.Message, err error) {
	defer close(r.done)
	declined := strings.Contains(string(m.Part(wire.PartResult)), `"action":"cancel"`)
	if err != nil || m.Part(wire.PartError) == nil && !declined {
		r.t.Errorf("%s: %s, %v", r.method, m.Raw(), err)
	}
}

// sendEverything lets a backend send each notification and each request that a backend may send. It
// waits until the requests are refused.
func (b *leakBackend) sendEverything(t *testing.T) {
	for method, params := range map[string]string{
		"notifications/message":                `{"level":"error","logger":"zq","data":"zq"}`,
		"notifications/progress":               `{"progressToken":1,"progress":1,"message":"zq"}`,
		"notifications/tools/list_changed":     `{}`,
		"notifications/prompts/list_changed":   `{}`,
		"notifications/resources/list_changed": `{}`,
		"notifications/resources/updated":      `{"uri":"zqvault:doc"}`,
		"notifications/elicitation/complete":   `{"elicitationId":"zq"}`,
		"notifications/cancelled":              `{"requestId":99,"reason":"zq"}`,
		"notifications/tasks/status": `{"taskId":"task-zqvault-1","status":"working",` +
			`"statusMessage":"zq","createdAt":"2026-01-01T00:00:00Z","ttl":1}`,
	} {
		_ = b.Notify(method, []byte(params))
	}
	for method, params := range map[string]string{
		"sampling/createMessage": `{"messages":[],"maxTokens":1}`,
		"elicitation/create": `{"message":"zq",` +
			`"requestedSchema":{"type":"object","properties":{}}}`,
		"roots/list": `{}`,
	} {
		r, began := refusedRequest{t, method, make(chan struct{})}, time.Now()
		b.Send(wire.NewRequest("0", method, []byte(params)), &peer.Call{Handler: r})
		<-r.done
		if took := time.Since(began); took != 0 {
			t.Errorf("%s was refused after %v", method, took)
		}
	}
}

// A backend that a profile hides cannot send anything to a client of this profile, even if the
// client is the only one, and gets nothing from the client.
func TestProfiles_HiddenBackendCannotReachClient(t *testing.T) {
	for _, single := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newLeakWorld(t, settings{singleClient: single})
			legacy := w.connect("alice", "reader", false)
			modern := legacy
			if !single {
				modern = w.connect("alice", "reader", true)
				modern.request("tools/list", "")
			}
			legacy.request("tools/list", "")
			legacy.request("prompts/list", "")
			legacy.request("resources/list", "")
			legacy.request("logging/setLevel", `"level":"debug"`)
			if !single {
				modern.Send(modernRequest(`"listen"`, "subscriptions/listen",
					`"notifications":{"toolsListChanged":true,"promptsListChanged":true,`+
						`"resourcesListChanged":true},`, leakClientCaps))
				modern.WantNotification("notifications/subscriptions/acknowledged")
			}
			legacy.Send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
			time.Sleep(time.Second)
			if requests := w.takeRequests(); strings.Contains(requests, leakMark) {
				t.Errorf("single client: %v: a hidden backend has received: %s", single, requests)
			}
			w.backend("zqvault").sendEverything(t)
			time.Sleep(time.Second)
			legacy.WantNothing()
			modern.WantNothing()
			if single { // a permitted backend can
				_ = w.backend("apple").Notify("notifications/message",
					[]byte(`{"level":"error","data":"x"}`))
				legacy.WantNotification("notifications/message")
			}
		})
	}
}

// Clients are notified of a changed list only if what they may see has changed.
func TestProfiles_HiddenChangeIsNotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{sharing: map[string]string{"mixed": "session"}})
		clients := make(map[string]*leakClient)
		for _, profile := range []string{"reader", "writer"} {
			legacy, modern := w.connect("alice", profile, false), w.connect("alice", profile, true)
			legacy.request("tools/list", "")
			legacy.request("tools/call", `"name":"work"`) // opens its own connection to mixed
			modern.request("tools/list", "")
			modern.Send(modernRequest(`"listen"`, "subscriptions/listen",
				`"notifications":{"toolsListChanged":true},`, leakClientCaps))
			modern.WantNotification("notifications/subscriptions/acknowledged")
			clients[profile+" legacy"], clients[profile+" modern"] = legacy, modern
		}
		for _, step := range []struct {
			backend, tool string
			visible       string // profile of the clients that see the change; "" = all
		}{
			{"mixed", "zqnew", "writer"}, {"zqvault", "zqmore", "writer"},
			{"apple", "peel", "reader"}, {"mixed", "visible", ""},
		} {
			w.add(step.backend, step.tool)
			time.Sleep(5 * time.Second)
			for name, c := range clients {
				if !strings.HasPrefix(name, step.visible) {
					c.WantNothing()
					continue
				}
				c.WantNotification("notifications/tools/list_changed")
				c.WantNothing()
				c.request("tools/list", "")
			}
		}
	})
}

// Updates of a hidden resource are not forwarded, also if a visible resource contains it.
func TestProfiles_UpdatesOfHiddenResourcesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		legacy, modern := w.connect("alice", "reader", false), w.connect("alice", "reader", true)
		legacy.request("resources/list", "")
		modern.request("resources/list", "")
		legacy.request("resources/subscribe", `"uri":"mixed://a"`)
		modern.Send(modernRequest(`"listen"`, "subscriptions/listen",
			`"notifications":{"resourceSubscriptions":["mixed://a","mixed://a/zq"]},`, leakClientCaps))
		m := modern.WantNotification("notifications/subscriptions/acknowledged")
		if strings.Contains(string(m.Raw()), leakMark) {
			t.Errorf("acknowledged: %s", m.Raw())
		}
		for _, uri := range []string{"mixed://a/zq", "mixed://a/%7aq", "mixed://a/x"} {
			_ = w.backend("mixed").Notify("notifications/resources/updated",
				[]byte(`{"uri":"`+uri+`"}`))
		}
		for _, c := range []*leakClient{legacy, modern} {
			if m := c.WantNotification("notifications/resources/updated"); !strings.Contains(
				string(m.Raw()), "mixed://a/x") {
				t.Errorf("got %s", m.Raw())
			}
			c.WantNothing()
		}
	})
}

// A tool of a permitted backend returns a link to a resource that the profile hides: the client
// cannot read it.
func TestProfiles_LinkDoesNotPermitHiddenResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		for _, modern := range []bool{false, true} {
			c := w.connect("alice", "reader", modern)
			c.request("resources/list", "")
			c.request("tools/call", `"name":"link"`)
			w.takeRequests()
			got, want := c.text("resources/read", `"uri":"linked:zq-mixed"`),
				c.text("resources/read", `"uri":"linked:xj-mixed"`)
			if strings.ReplaceAll(got, "zq", "xj") != want || w.takeRequests() != "" {
				t.Errorf("got %s\nunknown: %s", got, want)
			}
			if got := c.text("resources/read", `"uri":"linked:mixed"`); !strings.Contains(got,
				"result of mixed") {
				t.Errorf("a permitted link: %s", got)
			}
		}
	})
}

// Only the audit record tells whether a name is hidden or does not exist.
func TestProfiles_AuditRecordHasTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeakWorld(t, settings{})
		w.connect("bob", "writer", true).request("tools/list", "")
		for _, modern := range []bool{false, true} {
			c := w.connect("alice", "reader", modern)
			c.request("tools/list", "")
			c.request("tools/call", `"name":"zqopen"`)
			c.request("tools/call", `"name":"zqnone"`)
			c.request("resources/read", `"uri":"zqvault://a"`)
			time.Sleep(mcptest.JournalDelay)
			const reason = "the profiles of the client hide it: reader, backend zqvault"
			for name, want := range map[string]int{"zqopen": 1, "zqnone": 0, "zqvault://a": 1} {
				lines := w.journal.Lines("="+name+" ", "outcome=rejected")
				got := 0
				for _, line := range lines {
					got += strings.Count(line, reason)
				}
				clients := 1
				if modern { // the records of the first client are still there
					clients = 2
				}
				if len(lines) != clients || got != clients*want {
					t.Errorf("%s: %q", name, lines)
				}
			}
		}
	})
}
