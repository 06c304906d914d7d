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
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// denying returns a backend's configuration with filters that deny these globs of each kind.
func denying(c config.Backend, tools, prompts, resources string) config.Backend {
	c.Tools.Deny, c.Prompts.Deny, c.Resources.Deny = strings.Fields(tools), strings.Fields(prompts), strings.Fields(resources)
	return c
}

// ends is why a call ended.
type ends struct{ peer.ResponseChan }

func (h *house) sendTo(backend, method, params string) ends {
	e := ends{make(peer.ResponseChan, 2)}
	h.Send(backend, wire.NewRequest("0", method, []byte(params)), &peer.Call{Handler: e.ResponseChan, SessionID: "s"})
	return e
}

// wantForbidden checks that a call has ended once, because the configuration does not permit it.
func (e ends) wantForbidden(t *testing.T, what string) {
	t.Helper()
	synctest.Wait()
	if len(e.ResponseChan) != 1 {
		t.Errorf("%s: ended %d times", what, len(e.ResponseChan))
		return
	}
	if a := <-e.ResponseChan; !errors.Is(a.Err, peer.ErrForbidden) {
		t.Errorf("%s: ended with %v %s", what, a.Err, a.Raw())
	}
}

func TestReloadForbidsQueuedCalls_F_SEC_1(t *testing.T) {
	o := withPlaces(1, time.Minute)
	inHouse(t, o, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("open", "secret")
		h.OpenSession("s", nil, false)
		first, _ := h.ask("s", "secret")
		ids := wantTools(t, p, "secret")
		queued, last := h.sendTo("a", "tools/call", `{"name":"secret"}`), h.sendTo("a", "tools/call", `{"name":"open"}`)
		<-h.apply(change(denying(o.Backends[0], "secret", "", "")))
		h.wantNames("open")
		p.SendResult(ids[0], "{}") // a call that was sent before ends as it would have
		first.ok(t)
		queued.wantForbidden(t, "queued")
		ids = wantTools(t, p, "open")
		p.SendResult(ids[0], "{}")
		if a := <-last.ResponseChan; a.Err != nil {
			t.Errorf("the permitted call ended with %v", a.Err)
		}
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "direct")
		p.WantNothing()
	})
}

// A call waits for a server that starts; meanwhile the configuration forbids it.
func TestReloadForbidsCallsOfAStartingBackend_F_SEC_1(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.OpenSession("s", nil, false)
		p := h.next("a")
		var waiting []ends
		for method, params := range map[string]string{
			"tools/call":          `{"name":"secret"}`,
			"prompts/get":         `{"name":"secret"}`,
			"resources/read":      `{"uri":"x:secret"}`,
			"resources/subscribe": `{"uri":"x:secret"}`,
			"completion/complete": `{"ref":{"type":"ref/prompt","name":"secret"},"argument":{"name":"a","value":""}}`,
		} {
			waiting = append(waiting, h.sendTo("a", method, params))
		}
		waiting = append(waiting, h.sendTo("a", "completion/complete", `{"ref":{"type":"ref/resource","uri":"x:secret"}}`))
		<-h.apply(change(denying(all[0], "secret", "secret", "x:secret")))
		p.ServeStartup("secret", "open")
		for _, e := range waiting {
			e.wantForbidden(t, "waiting")
		}
		h.wantNames("open")
		p.WantNothing()
	})
}

// The old server of a backend that is replaced does not get what the new configuration forbids,
// though it serves until the new one is ready.
func TestReloadForbidsAtTheServerThatIsReplaced_F_SEC_1(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeStartup("open", "secret")
		h.OpenSession("s", nil, false)
		done := h.apply(change(denying(edited(all[0], "new"), "secret", "", "")))
		next := h.next("a")
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "at the old one")
		h.wantNames("open")
		next.ServeStartup("open", "secret")
		<-done
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "at the new one")
		h.wantNames("open")
	})
}

// A backend that is removed or disabled gets no queued call.
func TestReloadWithoutTheBackendEndsQueuedCalls_F_SEC_1(t *testing.T) {
	for how, want := range map[string]string{"removed": removed, "disabled": "it is disabled in the configuration"} {
		o := withPlaces(1, time.Minute)
		inHouse(t, o, func(t *testing.T, h *house) {
			p := h.next("a")
			p.ServeStartup("t")
			first, _ := h.ask("one", "t")
			queued, _ := h.ask("one", "t")
			ids := wantTools(t, p, "t")
			next := change()
			if how == "disabled" {
				o.Backends[0].Enabled = false
				next = change(o.Backends...)
			}
			<-h.apply(next)
			queued.want(t, want)
			p.SendResult(ids[0], "{}")
			first.ok(t)
			wantTools(t, p)
		})
	}
}

// A request that a stateless server has refused is not sent once more if the configuration forbids
// it meanwhile.
func TestReloadForbidsRetriedCalls_F_SEC_1(t *testing.T) {
	all := modern(remote("a"))
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeDiscover("")
		p.ServeToolsList(mcptest.ToolsResult("secret"))
		h.OpenSession("s", nil, false)
		e := h.sendTo("a", "tools/call", `{"name":"secret"}`)
		p.SendError(p.HandleRequest("tools/call").ID(), `{"code":-32020,"message":"header mismatch"}`)
		list := p.HandleRequest("tools/list")
		<-h.apply(change(denying(all[0], "secret", "", "")))
		p.SendResult(list.ID(), mcptest.ToolsResult("secret"))
		e.wantForbidden(t, "retried")
		p.WantNothing()
	})
}

// A subscription to what the configuration forbids brings no updates, and is told to no server; it
// is again when the configuration permits it.
func TestReloadForbidsSubscriptions_F_SEC_1(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeHandshake(logger)
		h.lists(p)
		h.OpenSession("s", nil, false)
		c := h.subscribe("s", "a", "x:secret", true)
		p.SendResult(p.HandleRequest("resources/subscribe").ID(), "{}")
		c.ok(t)
		const heard = "s told by a: notifications/resources/updated"
		update := `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:secret"}}`
		p.Send(update)
		h.ear.want(t, heard)
		<-h.apply(change(denying(all[0], "", "", "x:*")))
		p.Send(update)
		h.ear.want(t)
		again := h.subscribe("s", "a", "x:secret", true)
		again.want(t, peer.ErrForbidden.Error())
		p.Close()
		next := h.next("a")
		next.ServeHandshake(logger)
		h.lists(next)
		next.WantNothing() // it is not subscribed to again
		<-h.apply(change(all[0]))
		next.SendResult(next.HandleRequest("resources/subscribe").ID(), "{}")
		h.ear.want(t, heard) // something may have been missed
		next.Send(update)
		h.ear.want(t, heard)
	})
}

func TestFiltersChangeInPlace_F_CLI_5(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		p := h.next("a")
		p.ServeHandshake("")
		p.ServeToolsList(mcptest.ToolsResult("open", "secret"))
		c, _ := h.call("a")
		id := p.HandleRequest("tools/call").ID()
		for _, step := range []struct {
			deny string
			want []string
		}{{"secret", []string{"open"}}, {"*", nil}, {"", []string{"open", "secret"}}} {
			v := h.View()
			<-h.apply(change(denying(all[0], step.deny, "", "")))
			h.wantNames(step.want...)
			if n := h.status("a").Counts[catalog.Tools]; n != len(step.want) {
				t.Errorf("status counts %d tools, want %d", n, len(step.want))
			}
			select {
			case <-v.Changed:
			default:
				t.Error("nobody is told")
			}
		}
		if n := len(h.dials("a")); n != 1 || p.Disconnected() {
			t.Errorf("a was started %d times", n)
		}
		p.WantNothing() // it is not listed anew either
		p.SendResult(id, "{}")
		c.ok(t)
	})
}

// The globs of a filter that was changed in place are compared with what is listed.
func TestGlobsOfAChangedFilterAreCompared_F_CLI_5(t *testing.T) {
	all := plain("a")
	inHouse(t, backends.Options{Backends: all}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		<-h.apply(change(denying(all[0], "nope t", "p", "x:y")))
		if got, want := h.status("a").Unmatched, []string{`tools.deny "nope"`, `prompts.deny "p"`, `resources.deny "x:y"`}; !slices.Equal(got, want) {
			t.Errorf("unmatched %q, want %q", got, want)
		}
		<-h.apply(change(all[0]))
		if got := h.status("a").Unmatched; len(got) > 0 {
			t.Errorf("unmatched %q", got)
		}
	})
}
