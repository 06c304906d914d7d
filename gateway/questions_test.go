package gateway_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// loginBackends are Backends that need a login: until done is closed, each call needs the consent
// loggedIn, and waits for done after that.
type loginBackends struct {
	gateway.Backends
	done chan struct{}
	why  error // may be nil

	mu   sync.Mutex // for expire
	page int
}

// expire ends the page without a login. The next call is asked to open another page.
func (b *loginBackends) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.done)
	b.done = make(chan struct{})
	b.page++
}

const loggedIn contract.Consents = 1 << 7

func (b *loginBackends) wrap(set gateway.Backends) gateway.Backends {
	b.Backends, b.done, b.page = set, make(chan struct{}), 1
	return b
}

func (b *loginBackends) NewCall(backend string, r contract.BackendRequest,
	h contract.CallHandler) contract.BackendCall {
	call := b.Backends.NewCall(backend, r, h)
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
		return call
	default:
		return loginCall{call, h, &contract.QuestionError{Asks: loggedIn,
			URL:  fmt.Sprint("https://gateway.example/login?x=", b.page),
			Text: "Log in to\u202e gh", Err: b.why, Done: b.done}}
	}
}

// A loginCall is a call that is not sent.
type loginCall struct {
	contract.BackendCall
	h        contract.CallHandler
	question *contract.QuestionError
}

func (c loginCall) Send() { c.h.OnResponse(contract.BackendResponse{Err: c.question}) }

const bothCap = `{"elicitation":{"form":{},"url":{}}}`

// openLogin opens a session in front of a backend that needs a login.
func openLogin(t *testing.T, caps string) (b *loginBackends, h *harness, client, gh *mcptest.Peer) {
	t.Helper()
	b = new(loginBackends)
	o := confirmSettings("legacy")
	o.wrap = b.wrap
	h, client, gh = openConfirm(t, o, "2025-11-25", caps)
	return b, h, client, gh
}

// The client is asked to open a page. The call continues when the user has finished there, and also
// if it needs a confirmation after that.
func TestQuestion_SessionOpensPage(t *testing.T) {
	for _, tool := range []string{"get", "del_a"} {
		synctest.Test(t, func(t *testing.T) {
			b, _, client, gh := openLogin(t, bothCap)
			client.Send(toolsCall("1", tool))
			m := client.WantRequest("elicitation/create")
			if paramAt(t, m, "mode") != `"url"` ||
				paramAt(t, m, "url") != `"https://gateway.example/login?x=1"` ||
				paramAt(t, m, "message") != `"Log in to\\u202e gh"` ||
				len(paramAt(t, m, "elicitationId")) < 10 {
				t.Errorf("the request is %s", m.Raw())
			}
			client.SendResult(m.ID(), `{"action":"accept"}`)
			time.Sleep(5 * time.Minute)
			gh.WantNothing()
			client.WantNothing()
			close(b.done)
			if tool == "del_a" {
				client.SendResult(wantQuestion(t, client).ID(), confirmed)
			}
			gh.SendResult(gh.WantRequest("tools/call").ID(), `{}`)
			client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		})
	}
}

// A page that the user does not open, or does not finish, ends the call, which did not run.
func TestQuestion_SessionDoesNotOpenPage(t *testing.T) {
	const page = "backend gh requires that the user opens a page, and "
	refused := func(t *testing.T, h *harness, client *mcptest.Peer, why string) {
		t.Helper()
		if m := client.NextMessage(); !m.IsToolError() ||
			!strings.Contains(string(m.Raw()), "The call did not run. To permit it, open "+
				"https://gateway.example/login?x=1 in a browser, then repeat the call. Reason: "+
				page+why) {
			t.Errorf("got %s", m.Raw())
		}
		wantRecord(t, h, "outcome=rejected reason=\""+page+why)
	}
	synctest.Test(t, func(t *testing.T) {
		_, h, client, gh := openLogin(t, bothCap)
		client.Send(toolsCall("1", "get"))
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"decline"}`)
		refused(t, h, client, "the user has declined")
		gh.WantNothing()
	})
	synctest.Test(t, func(t *testing.T) {
		_, h, client, gh := openLogin(t, bothCap)
		client.Send(toolsCall("1", "get"))
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"accept"}`)
		time.Sleep(10*time.Minute + time.Second)
		refused(t, h, client, "there is no answer: not done within 10m0s")
		gh.WantNothing()
	})
	synctest.Test(t, func(t *testing.T) {
		_, h, client, gh := openLogin(t, formCap)
		client.Send(toolsCall("1", "get"))
		refused(t, h, client, "this client cannot be asked: elicitation/create: the client has "+
			"not declared the capability elicitation.url")
		gh.WantNothing()
	})
	synctest.Test(t, func(t *testing.T) { // cancelled while the user is on the page
		b, h, client, gh := openLogin(t, bothCap)
		client.Send(toolsCall("1", "get"))
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"accept"}`)
		client.Send(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		close(b.done)
		client.WantNothing()
		gh.WantNothing()
		wantRecord(t, h, "outcome=cancelled")
	})
}

// A client without a session gets the page as an input request. Its retry waits until the user has
// finished there; a confirmation may follow.
func TestQuestion_StatelessOpensPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(loginBackends)
		o := confirmSettings("legacy")
		o.wrap = b.wrap
		h, client, gh := openStatelessConfirm(t, o, bothCap)
		send := func(line string) { client.Send(strings.Replace(line, formCap, bothCap, 1)) }
		send(modernDel("1", ""))
		m := client.NextMessage()
		requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
		if want := `{"q1":{"method":"elicitation/create","params":{"mode":"url","message":"Log in to\\u202e gh","url":"https://gateway.example/login?x=1"}}}`; string(requests) != want {
			t.Errorf("the requests are %s", requests)
		}
		state, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
		send(retryDel("2", `{"q1":{"action":"accept"}}`, string(state)))
		time.Sleep(5 * time.Minute)
		gh.WantNothing()
		client.WantNothing()
		send(retryDel("3", `{"q1":{"action":"accept"}}`, string(state)))
		wantState(t, client)
		close(b.done)
		second := wantInputRequired(t, client, "q1")
		send(retryDel("4", confirmedQ1, second))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		wantComplete(t, client, "4")
		gh.WantNothing()
		wantRecord(t, h, "outcome=input_required", "outcome=ok confirmation=accepted")
	})
}

// If the user does not open the page, the error has the reason, which names the command, and the
// link: a client without a user dismisses the question itself. The record does not have the link.
func TestQuestion_ErrorAfterDismissalHasCommandAndLink(t *testing.T) {
	const reason = "backend gh: it needs a login (nobody is logged in): gateway login gh, and the user "
	check := func(t *testing.T, h *harness, m wire.Message, action string, records ...string) {
		t.Helper()
		why := reason + map[string]string{"cancel": "has dismissed the question",
			"decline": "has declined"}[action]
		if want := "The call did not run. To permit it, open https://gateway.example/" +
			"login?x=1 in a browser, then repeat the call. Reason: " + why; !m.IsToolError() || !strings.Contains(string(m.Raw()), want) {
			t.Errorf("%s: got %s", action, m.Raw())
		}
		wantRecord(t, h, append(records, "outcome=rejected reason=\""+why+"\"")...)
		if all := strings.Join(h.auditRecords(), "\n"); strings.Contains(all, "login?x=1") {
			t.Errorf("the link is in %s", all)
		}
	}
	why := errors.New("it needs a login (nobody is logged in): gateway login gh")
	for _, action := range []string{"cancel", "decline"} {
		synctest.Test(t, func(t *testing.T) {
			b, h, client, gh := openLogin(t, bothCap)
			b.why = why
			client.Send(toolsCall("1", "get"))
			client.SendResult(client.WantRequest("elicitation/create").ID(),
				`{"action":"`+action+`"}`)
			check(t, h, client.NextMessage(), action)
			gh.WantNothing()
		})
		synctest.Test(t, func(t *testing.T) {
			b := &loginBackends{why: why}
			o := confirmSettings("legacy")
			o.wrap = b.wrap
			h, client, gh := openStatelessConfirm(t, o, bothCap)
			send := func(line string) { client.Send(strings.Replace(line, formCap, bothCap, 1)) }
			send(modernDel("1", ""))
			send(retryDel("2", `{"q1":{"action":"`+action+`"}}`,
				wantInputRequired(t, client, "q1")))
			check(t, h, client.NextMessage(), action, "outcome=input_required")
			gh.WantNothing()
		})
	}
}

// The retry of a client without a session is cancelled, or its time is over, while the user is on
// the page.
func TestQuestion_StatelessDoesNotFinishPage(t *testing.T) {
	for _, cancels := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := new(loginBackends)
			o := confirmSettings("legacy")
			o.wrap = b.wrap
			h, client, gh := openStatelessConfirm(t, o, bothCap)
			send := func(line string) { client.Send(strings.Replace(line, formCap, bothCap, 1)) }
			send(modernDel("1", ""))
			send(retryDel("2", `{"q1":{"action":"accept"}}`, wantInputRequired(t, client, "q1")))
			synctest.Wait()
			if cancels {
				client.Send(
					`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
				synctest.Wait()
				close(b.done)
				client.WantNothing()
				wantRecord(t, h, "outcome=cancelled")
			} else {
				time.Sleep(10*time.Minute + time.Second)
				if m := client.NextMessage(); !m.IsToolError() ||
					!strings.Contains(string(m.Raw()), "not done within 10m0s") {
					t.Errorf("got %s", m.Raw())
				}
			}
			gh.WantNothing()
		})
	}
}

// A call that waits for a page ends when the page expires, with the link of another page. It did
// not run. Nobody is asked to open that page, so that the call does not wait for it. Package
// gateway cannot distinguish this from a login that the server refuses.
func TestQuestion_PageThatExpiresEndsTheCall(t *testing.T) {
	check := func(t *testing.T, client *mcptest.Peer) {
		t.Helper()
		if m := client.NextMessage(); !m.IsToolError() || !strings.Contains(string(m.Raw()),
			"open https://gateway.example/login?x=2 in a browser, then repeat the call. Reason: "+
				"backend gh requires that the user opens a page, and there is no answer: the page "+
				"that the user agreed to open has expired, or the server has refused the login") {
			t.Errorf("got %s", m.Raw())
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b, h, client, gh := openLogin(t, bothCap)
		client.Send(toolsCall("1", "get"))
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"accept"}`)
		time.Sleep(time.Minute)
		client.WantNothing()
		b.expire()
		check(t, client)
		wantRecord(t, h, "outcome=rejected reason=\"backend gh requires")
		gh.WantNothing()
	})
	for _, early := range []bool{true, false} { // the page expires before the retry, or after it
		synctest.Test(t, func(t *testing.T) {
			b := new(loginBackends)
			o := confirmSettings("legacy")
			o.wrap = b.wrap
			_, client, gh := openStatelessConfirm(t, o, bothCap)
			send := func(line string) { client.Send(strings.Replace(line, formCap, bothCap, 1)) }
			send(modernDel("1", ""))
			state := wantInputRequired(t, client, "q1")
			if early {
				b.expire()
			}
			send(retryDel("2", `{"q1":{"action":"accept"}}`, state))
			synctest.Wait()
			if !early {
				client.WantNothing()
				b.expire()
			}
			check(t, client)
			gh.WantNothing()
		})
	}
}

// A method that allows no input requests fails for a client without a session, with the reason.
func TestQuestion_MethodWithoutInputRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(loginBackends)
		h := newHarness(t, settings{singleClient: true, wrap: b.wrap}, "gh")
		client, _ := h.connectClient()
		client.Send(modernRequest("0", "prompts/list", "", bothCap))
		gh := h.nextProcess("gh")
		gh.ServeHandshake(`{"protocolVersion":"2025-11-25","capabilities":{"prompts":{},"completions":{}},"serverInfo":{"name":"x","version":"1"}}`)
		for range 2 {
			m := gh.NextMessage()
			gh.SendResult(m.ID(), map[string]string{"tools/list": `{"tools":[]}`,
				"prompts/list": `{"prompts":[{"name":"p"}]}`}[m.Method()])
		}
		client.NextMessage()
		client.Send(modernRequest("1", "completion/complete",
			`"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},`, bothCap))
		m := client.NextMessage()
		if e := wire.ReadError(m.Part(wire.PartError)); e.Message !=
			"backend gh: it requires that the user opens a page; the call did not run. "+
				"To permit it, open https://gateway.example/login?x=1 in a browser, then repeat "+
				"the call." {
			t.Errorf("got %s", m.Raw())
		}
		gh.WantNothing()
	})
}
