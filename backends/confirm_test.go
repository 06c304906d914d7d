package backends_test

import (
	"errors"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/wire"
)

// withConfirm returns a backend whose tools that match the globs must be confirmed.
func withConfirm(c config.Backend, globs ...string) config.Backend {
	c.Tools.Confirm = globs
	return c
}

// wantQuestion expects that the call was not sent because it must be confirmed.
func (e callEnd) wantQuestion(t *testing.T, what string) {
	t.Helper()
	resp := <-e.ResponseChan
	q, ok := errors.AsType[*contract.QuestionError](resp.Err)
	if !ok || q.Asks != contract.Confirmed {
		t.Errorf("%s: the call ended with %v %s", what, resp.Err, resp.Message.Raw())
	}
}

// wantResult expects a result.
func (e callEnd) wantResult(t *testing.T) {
	t.Helper()
	if resp := <-e.ResponseChan; resp.Err != nil || resp.Message.Part(wire.PartResult) == nil {
		t.Errorf("the call ended with %v %s", resp.Err, resp.Message.Raw())
	}
}

// sendRequest sends a request.
func (h *harness) sendRequest(r contract.BackendRequest) callEnd {
	e := callEnd{make(backends.ResponseChan, 2)}
	h.NewCall("a", r, e).Send()
	return e
}

// A call that must be confirmed is not sent, whatever name the request has: the backend's own name
// decides. With the consent it is sent, once and as it is.
func TestConfirm_ChecksOwnName(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("del", "get")
		h.OpenSession("s", nil, false)
		<-h.startApply(change(withConfirm(all[0], "del*")))
		request := func(name string) contract.BackendRequest {
			return contract.BackendRequest{Session: "s", Message: wire.NewRequest("0", "tools/call",
				[]byte(`{"name":"`+name+`"}`))}
		}
		h.sendRequest(request("del")).wantQuestion(t, "the name in the message")
		r := request("get")
		r.Name = []byte(`"d\u0065l"`)
		h.sendRequest(r).wantQuestion(t, "the name that replaces it")
		r.Entry = "del"
		h.sendRequest(r).wantQuestion(t, "the name for the filters")
		p.WantNothing()
		r.Consents = contract.Confirmed
		end := h.sendRequest(r)
		p.SendResult(wantToolCalls(t, p, "del")[0], "{}")
		end.wantResult(t)
		end = h.sendRequest(request("get"))
		p.SendResult(wantToolCalls(t, p, "get")[0], "{}")
		end.wantResult(t)
		end = h.sendTo("a", "prompts/get", `{"name":"del"}`)
		p.SendResult(p.WantRequest("prompts/get").ID(), "{}")
		end.wantResult(t)
	})
}

// A call that waits for a slot is asked about when its turn comes, if a reload requires it. It
// gives the slot to the next call.
func TestConfirm_ReloadAppliesToCallsInQueue(t *testing.T) {
	o := withMaxInFlight(1, time.Minute)
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeStartup("del", "get")
		h.OpenSession("s", nil, false)
		first, _ := h.callTool("s", "get")
		queued := h.sendTo("a", "tools/call", `{"name":"del"}`)
		last, _ := h.callTool("s", "get")
		ids := wantToolCalls(t, p, "get")
		<-h.startApply(change(withConfirm(o.Backends[0], "del")))
		direct := h.sendTo("a", "tools/call", `{"name":"del"}`)
		direct.wantQuestion(t, "direct") // at once, although no slot is free
		p.SendResult(ids[0], "{}")
		first.wantResult(t)
		queued.wantQuestion(t, "queued")
		p.SendResult(wantToolCalls(t, p, "get")[0], "{}")
		last.wantResult(t)
		p.WantNothing()
	})
}

// A reload that denies a tool, and requires a confirmation for it, denies it.
func TestConfirm_DeniedToolHasNoQuestion(t *testing.T) {
	all := legacyBackends("a")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("del")
		h.OpenSession("s", nil, false)
		<-h.startApply(change(withConfirm(withDenied(all[0], "del", "", ""), "*")))
		h.sendTo("a", "tools/call", `{"name":"del"}`).wantForbidden(t, "denied")
	})
}
