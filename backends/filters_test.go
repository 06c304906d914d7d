package backends_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// withDenied returns a backend's configuration with filters that deny these globs of each kind.
func withDenied(c config.Backend, tools, prompts, resources string) config.Backend {
	c.Tools.Deny, c.Prompts.Deny, c.Resources.Deny = strings.Fields(tools), strings.Fields(prompts),
		strings.Fields(resources)
	return c
}

// callEnd receives the response or error of a call.
type callEnd struct{ backends.ResponseChan }

func (h *harness) sendTo(backend, method, params string) callEnd {
	e := callEnd{make(backends.ResponseChan, 2)}
	h.SendCall(backend, "s", wire.NewRequest("0", method, []byte(params)),
		e.ResponseChan)
	return e
}

// wantForbidden checks that a call has ended once, because the configuration does not permit
// it.
func (e callEnd) wantForbidden(t *testing.T, what string) {
	t.Helper()
	synctest.Wait()
	if len(e.ResponseChan) != 1 {
		t.Errorf("%s: ended %d times", what, len(e.ResponseChan))
		return
	}
	if a := <-e.ResponseChan; !errors.Is(a.Err, contract.ErrForbidden) {
		t.Errorf("%s: ended with %v %s", what, a.Err, a.Message.Raw())
	}
}

func TestReloadForbidsQueuedCalls_F_SEC_1(t *testing.T) {
	o := withMaxInFlight(1, time.Minute)
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("open", "secret")
		h.OpenSession("s", nil, false)
		first, _ := h.callTool("s", "secret")
		ids := wantToolCalls(t, p, "secret")
		queued, last := h.sendTo("a", "tools/call", `{"name":"secret"}`),
			h.sendTo("a", "tools/call", `{"name":"open"}`)
		<-h.startApply(change(withDenied(o.Backends[0], "secret", "", "")))
		h.wantNames("open")
		p.SendResult(ids[0], "{}") // a call that was sent before ends normally
		first.wantResult(t)
		queued.wantForbidden(t, "queued")
		ids = wantToolCalls(t, p, "open")
		p.SendResult(ids[0], "{}")
		if a := <-last.ResponseChan; a.Err != nil {
			t.Errorf("the permitted call ended with %v", a.Err)
		}
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "direct")
		p.WantNothing()
	})
}

// A call that is queued for a starting server fails if the configuration forbids it meanwhile.
func TestReloadForbidsCallsOfStartingBackend_F_SEC_1(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.OpenSession("s", nil, false)
		p := h.nextProcess("a")
		var waiting []callEnd
		for method, params := range map[string]string{
			"tools/call":          `{"name":"secret"}`,
			"prompts/get":         `{"name":"secret"}`,
			"resources/read":      `{"uri":"x:secret"}`,
			"resources/subscribe": `{"uri":"x:secret"}`,
			"completion/complete": `{"ref":{"type":"ref/prompt","name":"secret"},"argument":{"name":"a","value":""}}`,
		} {
			waiting = append(waiting, h.sendTo("a", method, params))
		}
		waiting = append(waiting, h.sendTo("a", "completion/complete",
			`{"ref":{"type":"ref/resource","uri":"x:secret"}}`))
		<-h.startApply(change(withDenied(all[0], "secret", "secret", "x:secret")))
		p.ServeStartup("secret", "open")
		for _, e := range waiting {
			e.wantForbidden(t, "waiting")
		}
		h.wantNames("open")
		p.WantNothing()
	})
}

// The old server of a backend that is replaced does not get requests that the new configuration
// forbids, although it serves until the new one is ready.
func TestReloadForbidsAtReplacedServer_F_SEC_1(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("open", "secret")
		h.OpenSession("s", nil, false)
		done := h.startApply(change(withDenied(withEnv(all[0], "new"), "secret", "", "")))
		next := h.nextProcess("a")
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "at the old one")
		h.wantNames("open")
		next.ServeStartup("open", "secret")
		<-done
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "at the new one")
		h.wantNames("open")
	})
}

// A backend that is removed or disabled gets no queued call.
func TestReloadEndsQueuedCallsOfRemovedBackend_F_SEC_1(t *testing.T) {
	for how, want := range map[string]string{"removed": removed,
		"disabled": "it is disabled in the configuration"} {
		o := withMaxInFlight(1, time.Minute)
		withHarness(t, o, func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeStartup("t")
			first, _ := h.callTool("one", "t")
			queued, _ := h.callTool("one", "t")
			ids := wantToolCalls(t, p, "t")
			next := change()
			if how == "disabled" {
				o.Backends[0].Enabled = false
				next = change(o.Backends...)
			}
			<-h.startApply(next)
			queued.want(t, want)
			p.SendResult(ids[0], "{}")
			first.wantResult(t)
			wantToolCalls(t, p)
		})
	}
}

// A request that a modern server has refused is not retried if the configuration forbids it
// meanwhile.
func TestReloadForbidsRetriedCalls_F_SEC_1(t *testing.T) {
	all := modernBackends(perSessionBackend("a"))
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeDiscover("")
		p.ServeToolsList(mcptest.ToolsResult("secret"))
		h.OpenSession("s", nil, false)
		e := h.sendTo("a", "tools/call", `{"name":"secret"}`)
		p.SendError(p.WantRequest("tools/call").ID(),
			`{"code":-32020,"message":"header mismatch"}`)
		list := p.WantRequest("tools/list")
		<-h.startApply(change(withDenied(all[0], "secret", "", "")))
		p.SendResult(list.ID(), mcptest.ToolsResult("secret"))
		e.wantForbidden(t, "retried")
		p.WantNothing()
	})
}

// A subscription that the configuration forbids receives no updates, and is sent to no server; it
// is restored when the configuration permits it.
func TestReloadForbidsSubscriptions_F_SEC_1(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake(loggingServer)
		h.serveLists(p)
		h.OpenSession("s", nil, false)
		c := h.subscribe("s", "a", "x:secret", true)
		p.SendResult(p.WantRequest("resources/subscribe").ID(), "{}")
		c.wantResult(t)
		const notification = "s notified by a: notifications/resources/updated"
		update := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:secret"}}`
		p.Send(update)
		h.clients.want(t, notification)
		<-h.startApply(change(withDenied(all[0], "", "", "x:*")))
		p.Send(update)
		h.clients.want(t)
		again := h.subscribe("s", "a", "x:secret", true)
		again.want(t, contract.ErrForbidden.Error())
		p.Close()
		next := h.nextProcess("a")
		next.ServeHandshake(loggingServer)
		h.serveLists(next)
		next.WantNothing() // no new subscribe
		<-h.startApply(change(all[0]))
		next.SendResult(next.WantRequest("resources/subscribe").ID(), "{}")
		h.clients.want(t, notification) // an update may have been missed
		next.Send(update)
		h.clients.want(t, notification)
	})
}

func TestFiltersChangeInPlace_F_CLI_5(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(mcptest.ToolsResult("open", "secret"))
		c, _ := h.call("a")
		id := p.WantRequest("tools/call").ID()
		for _, step := range []struct {
			deny string
			want []string
		}{{"secret", []string{"open"}}, {"*", nil}, {"", []string{"open", "secret"}}} {
			v := h.View()
			<-h.startApply(change(withDenied(all[0], step.deny, "", "")))
			h.wantNames(step.want...)
			if n := h.status("a").Counts[catalog.Tools]; n != len(step.want) {
				t.Errorf("status counts %d tools, want %d", n, len(step.want))
			}
			select {
			case <-v.Changed:
			default:
				t.Error("no notification")
			}
		}
		if n := len(h.dialTimes("a")); n != 1 || p.Disconnected() {
			t.Errorf("a was started %d times", n)
		}
		p.WantNothing() // the lists are not read again either
		p.SendResult(id, "{}")
		c.wantResult(t)
	})
}

// The globs of a filter that was changed in place are compared with the lists.
func TestUnmatchedGlobsOfChangedFilter_F_CLI_5(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		<-h.startApply(change(withDenied(all[0], "nope t", "p", "x:y")))
		if got, want := h.status("a").Unmatched, []string{`tools.deny "nope"`, `prompts.deny "p"`,
			`resources.deny "x:y"`}; !slices.Equal(got, want) {
			t.Errorf("unmatched %q, want %q", got, want)
		}
		b := all[0]
		b.Tools.Confirm = []string{"t", "del*"}
		<-h.startApply(change(b))
		if got := h.status("a").Unmatched; !slices.Equal(got, []string{`tools.confirm "del*"`}) {
			t.Errorf("unmatched %q", got)
		}
		<-h.startApply(change(all[0]))
		if got := h.status("a").Unmatched; len(got) > 0 {
			t.Errorf("unmatched %q", got)
		}
	})
}
