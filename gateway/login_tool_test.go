package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A loginWorld is a gateway in front of the backend gh, which needs a login and was never listed.
type loginWorld struct {
	*harness
	t     *testing.T
	store string
	isIn  atomic.Bool // somebody has logged in
	gh    *mcptest.Peer
}

const (
	loginServer = "https://gh.example/mcp"
	loginPage   = "https://gateway.example/login/x"
)

// newLoginWorld starts the gateway. It must be called in a synctest bubble.
func newLoginWorld(t *testing.T, o settings) *loginWorld {
	t.Helper()
	w := &loginWorld{t: t, store: t.TempDir()}
	done := make(chan struct{})
	completed := sync.OnceFunc(func() { close(done) })
	o.singleClient = true
	o.editBackends = func(all *backends.Options) {
		b := &all.Backends[0]
		b.Command, b.URL, b.Sharing = "", loginServer, config.SharingShared
		all.Logins = oauthclient.NewStore(w.store, nil)
		all.LoginPage = func(string, string, *principal.Principal, *oauthclient.Authorization) (
			string, <-chan struct{}, error) {
			return loginPage, done, nil
		}
		all.CompleteLogin = func(*oauthclient.Authorization) { completed() }
		dial := all.Dial
		all.Dial = func(c config.Backend) (transport.Conn, error) {
			if !w.isIn.Load() {
				return nil, &oauthclient.LoginError{Command: "gateway login gh",
					Reason: "nobody is logged in"}
			}
			return dial(c)
		}
	}
	w.harness = newHarness(t, o, "gh")
	return w
}

// logIn logs in. The backend then lists these tools.
func (w *loginWorld) logIn(tools ...string) {
	w.t.Helper()
	w.logInAt("", mcptest.ToolsResult(tools...))
}

// logInAt logs in. The backend then sends this handshake, "" = the default, and this list.
func (w *loginWorld) logInAt(handshake, list string) {
	w.t.Helper()
	w.isIn.Store(true)
	sum := sha256.Sum256([]byte(loginServer + "\x00"))
	path := filepath.Join(w.store, "gh-"+hex.EncodeToString(sum[:8])+".json")
	grant := `{"issuer":"https://i.example","secrets":{"access_token":"t0"}}`
	if err := os.WriteFile(path, []byte(grant), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.gh = w.nextProcess("gh")
	w.gh.ServeHandshake(handshake)
	for range 2 { // it is read again after a login
		w.gh.ServeToolsList(list)
	}
}

const loginToolJSON = `{"name":"gh__login","title":"Log in to gh","description":"Log in to the server gh. Its tools are listed after the login.","inputSchema":{"additionalProperties":false,"type":"object"}}`

// openSession opens a session that has listed the login tool.
func (w *loginWorld) openSession(caps string) *mcptest.Peer {
	w.t.Helper()
	client, _ := w.connectClient()
	client.Initialize("2025-11-25", caps)
	if got := listTools(w.t, client); got != `{"tools":[`+loginToolJSON+`]}` {
		w.t.Errorf("the list is %s", got)
	}
	return client
}

// openStateless connects a client without a session.
func (w *loginWorld) openStateless(caps string) *mcptest.Peer {
	w.t.Helper()
	client, _ := w.connectClient()
	client.Send(modernRequest("0", "tools/list", "", caps))
	if m := client.NextMessage(); !strings.Contains(string(m.Raw()), `[`+loginToolJSON+`]`) {
		w.t.Errorf("the list is %s", m.Raw())
	}
	return client
}

// loginAnswer is the result of the login tool for a client with a session.
func loginAnswer(id, text string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"text":"Logged in to gh. ` +
		text + `","type":"text"}]}}`
}

// next returns the next message of a client, except list_changed notifications.
func next(client *mcptest.Peer) wire.Message {
	m := client.NextMessage()
	for m.Kind() == wire.Notification {
		m = client.NextMessage()
	}
	return m
}

func wantNext(t *testing.T, client *mcptest.Peer, want string) {
	t.Helper()
	if m := next(client); string(m.Raw()) != want {
		t.Errorf("got %s, want %s", m.Raw(), want)
	}
}

// The user of a client with a session is asked to open the page. After the login the call ends with
// a text, although the server has a tool login too, and the client gets list_changed.
func TestLoginTool_SessionClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLoginWorld(t, settings{})
		client := w.openSession(urlElicitationCap)
		client.Send(toolsCall("1", "gh__login"))
		m := client.WantRequest("elicitation/create")
		for path, want := range map[string]string{"mode": `"url"`, "url": `"` + loginPage + `"`,
			"message": `"The server gh requires a login. Open the page to log in."`} {
			if got := paramAt(t, m, path); got != want {
				t.Errorf("%s is %s, want %s", path, got, want)
			}
		}
		client.SendResult(m.ID(), `{"action":"accept"}`)
		time.Sleep(time.Minute) // the user logs in
		client.WantNothing()
		w.logIn("login", "read")
		var got []string
		for range 2 { // in either order
			got = append(got, string(client.NextMessage().Raw()))
		}
		all := strings.Join(got, "\n")
		for _, want := range []string{loginAnswer("1", "Number of its tools: 2."),
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`} {
			if !strings.Contains(all, want) {
				t.Errorf("got %s, want %s", all, want)
			}
		}
		// until the client lists the tools again, it calls the tool of the gateway
		client.Send(toolsCall("2", "gh__login"))
		wantNext(t, client, loginAnswer("2", "Number of its tools: 2."))
		w.gh.WantNothing()
		if got := listTools(t, client); strings.Contains(got, "Log in") {
			t.Errorf("the list is %s", got)
		}
		client.Send(toolsCall("3", "gh__login"))
		w.gh.SendResult(w.gh.WantRequest("tools/call").ID(), `{"content":[]}`)
		wantNext(t, client, `{"jsonrpc":"2.0","id":3,"result":{"content":[]}}`)
		wantRecord(t, w.harness, `tool=gh__login backend=gh backend_tool=login`)
		if n := len(w.auditRecords()); n != 3 {
			t.Errorf("%d audit records", n)
		}
	})
}

// A client without a session gets the question as an input request. Its retry is answered by the
// gateway, whether it comes before or after the tools of the server are listed.
func TestLoginTool_StatelessClientIsAsked(t *testing.T) {
	for _, loggedInFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newLoginWorld(t, settings{})
			client := w.openStateless(urlElicitationCap)
			client.Send(modernRequest("1", "tools/call", `"name":"gh__login",`, urlElicitationCap))
			m := client.NextMessage()
			requests, _ := wire.Lookup(m.Part(wire.PartResult), "inputRequests")
			want := `{"q1":{"method":"elicitation/create","params":{"mode":"url","message":` +
				`"The server gh requires a login. Open the page to log in.","url":"` + loginPage +
				`"}}}`
			if string(requests) != want {
				t.Errorf("the requests are %s, want %s", requests, want)
			}
			state, _ := wire.Lookup(m.Part(wire.PartResult), "requestState")
			retry := modernRequest("2", "tools/call", `"name":"gh__login","inputResponses":`+
				`{"q1":{"action":"accept"}},"requestState":`+string(state)+`,`, urlElicitationCap)
			if loggedInFirst {
				w.logIn("login", "read")
				synctest.Wait()
			}
			client.Send(retry)
			if !loggedInFirst {
				client.WantNothing()
				w.logIn("login", "read")
			}
			client.Want(completeResult("2", `"content":[{"text":"Logged in to gh. `+
				`Number of its tools: 2.","type":"text"}]}`))
			client.Send(retry)
			wantErrorCode(t, client, -32602) // the ticket was used
			w.gh.WantNothing()
			// a new call is meant for the tool that is listed now
			client.Send(modernRequest("4", "tools/call", `"name":"gh__login",`, urlElicitationCap))
			w.gh.SendResult(w.gh.WantRequest("tools/call").ID(), `{"content":[]}`)
			client.Want(completeResult("4", `"content":[]}`))
		})
	}
}

// The retry is answered by the gateway, and is no task, although the tool of the server that has
// the name by then requires a task.
func TestLoginTool_ServerHasAToolThatRequiresTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caps := strings.Replace(tasksCap, `"elicitation":{}`, `"elicitation":{"url":{}}`, 1)
		w := newLoginWorld(t, settings{})
		client := w.openStateless(caps)
		client.Send(modernRequest("1", "tools/call", `"name":"gh__login",`, caps))
		state := wantInputRequired(t, client, "q1")
		w.logInAt(tasksHandshake, `{"tools":[{"name":"login","inputSchema":{"type":"object"},`+
			`"execution":{"taskSupport":"required"}}]}`)
		synctest.Wait()
		client.Send(modernRequest("2", "tools/call", `"name":"gh__login","inputResponses":`+
			`{"q1":{"action":"accept"}},"requestState":`+state+`,`, caps))
		client.Want(completeResult("2", `"content":[{"text":"Logged in to gh. `+
			`Number of its tools: 1.","type":"text"}]}`))
		w.gh.WantNothing()
	})
}

// A client that cannot be asked gets an error with the link and the command, and so does a client
// whose user declines.
func TestLoginTool_ClientsThatCannotBeAsked(t *testing.T) {
	wantTexts := func(t *testing.T, m wire.Message, texts ...string) {
		t.Helper()
		for _, text := range append(texts, "did not run", "gateway login gh") {
			if !strings.Contains(string(m.Raw()), text) {
				t.Errorf("the error has no %q: %s", text, m.Raw())
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		w := newLoginWorld(t, settings{})
		client := w.openSession(`{}`)
		client.Send(toolsCall("1", "gh__login"))
		wantTexts(t, next(client), "open "+loginPage, "cannot be asked", `"isError":true`)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newLoginWorld(t, settings{})
		client := w.openStateless(`{}`)
		client.Send(modernRequest("1", "tools/call", `"name":"gh__login",`, `{}`))
		wantTexts(t, next(client), "open "+loginPage, "cannot be asked", "-32021")
	})
	synctest.Test(t, func(t *testing.T) {
		w := newLoginWorld(t, settings{})
		client := w.openSession(urlElicitationCap)
		client.Send(toolsCall("1", "gh__login"))
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"decline"}`)
		wantTexts(t, next(client), "declined", `"isError":true`)
		client.Send(toolsCall("2", "gh__read")) // a tool that is not listed gets the reason
		wantTexts(t, next(client), "nobody is logged in")
	})
}

// A call of the login tool counts once for the rate limit of the backend, and its second sending
// does not.
func TestLoginTool_CountsForTheRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{rates: new(ratelimit.RateLimiter)}
		setRate(o.rates, "1/h")
		w := newLoginWorld(t, o)
		client := w.openSession(urlElicitationCap)
		client.Send(toolsCall("1", "gh__login"))
		client.SendResult(client.WantRequest("elicitation/create").ID(), `{"action":"accept"}`)
		w.logIn("read")
		wantNext(t, client, loginAnswer("1", "Number of its tools: 1."))
		client.Send(toolsCall("2", "gh__login"))
		if m := next(client); !strings.Contains(string(m.Raw()), "1/h") {
			t.Errorf("the second call ended with %s", m.Raw())
		}
	})
}

// The client cancels the call while the user logs in, and while the gateway waits for the list. The
// gateway sends nothing to the server.
func TestLoginTool_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLoginWorld(t, settings{})
		client := w.openSession(urlElicitationCap)
		cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		client.Send(toolsCall("1", "gh__login"))
		m := client.WantRequest("elicitation/create")
		client.SendResult(m.ID(), `{"action":"accept"}`)
		synctest.Wait()
		client.Send(cancel)
		w.logIn("read")
		client.Send(listRequest)
		if m := next(client); m.ID() != `"list"` {
			t.Errorf("after the cancellation: %s", m.Raw())
		}
		client.WantNothing()
		w.gh.WantNothing()
	})
}
