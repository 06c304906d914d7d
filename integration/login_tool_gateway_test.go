//go:build unix

package integration

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpgateway/internal/mcptest/oidctest"
)

// A firstLogin is a client of a gateway whose backend notes was never logged in to.
type firstLogin struct {
	*gosdk.ClientSession
	p       protected
	s       *setup
	changed chan struct{} // a tools/list_changed notification
	open    func(ctx context.Context, page string) error
}

// startFirstLogin starts the gateway and connects the client. Its user opens the pages of URL
// elicitations; without asked, the client cannot be asked.
func startFirstLogin(t *testing.T, revision, over string, asked bool, edit func(*backend),
	o oidctest.ServerOptions) *firstLogin {
	t.Helper()
	f := &firstLogin{changed: make(chan struct{}, 10), open: openStartPage}
	f.p = newProtected(t, oidctest.Options{}, o)
	b := f.p.backend("notes")
	edit(&b)
	f.s = newSetup(t, map[string]any{"catalog": map[string]any{"wait": "20s"}}, demo, b)
	client := &gosdk.ClientOptions{Capabilities: &gosdk.ClientCapabilities{},
		ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) {
			f.changed <- struct{}{}
		}}
	if asked {
		client.Capabilities.Elicitation = &gosdk.ElicitationCapabilities{
			URL: &gosdk.URLElicitationCapabilities{}}
		client.ElicitationHandler = func(ctx context.Context, req *gosdk.ElicitRequest) (
			*gosdk.ElicitResult, error) {
			if req.Params.Mode != "url" || !strings.Contains(req.Params.Message, "notes") {
				return nil, errors.New("asked for " + req.Params.Message)
			}
			return &gosdk.ElicitResult{Action: "accept"}, f.open(ctx, req.Params.URL)
		}
	}
	var transport gosdk.Transport
	if over == "HTTP" {
		_, url := f.s.serveHTTP()
		awaitReady(t, url)
		transport = &gosdk.StreamableClientTransport{Endpoint: url,
			HTTPClient: separateConnections()}
	} else {
		gw := exec.Command(gateway(t), "-c", f.s.config)
		gw.Env = f.s.env()
		transport = &gosdk.CommandTransport{Command: gw, TerminateDuration: waitTimeout}
	}
	var err error
	f.ClientSession, err = gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"},
		client).Connect(t.Context(), transport,
		&gosdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// tools returns the names of the tools of notes that the client gets.
func (f *firstLogin) tools(t *testing.T) (all []string) {
	t.Helper()
	list, err := f.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if !slices.Contains([]string{"now", "echo", "add"}, tool.Name) {
			all = append(all, tool.Name)
		}
	}
	slices.Sort(all)
	return all
}

func (f *firstLogin) wantTools(t *testing.T, want ...string) {
	t.Helper()
	if got := f.tools(t); !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// call calls the login tool, and returns the text of its result or error.
func (f *firstLogin) call(t *testing.T) (text string, isError bool) {
	t.Helper()
	result, err := f.CallTool(t.Context(), &gosdk.CallToolParams{Name: "notes__login"})
	if err != nil {
		return err.Error(), true
	}
	return result.Content[0].(*gosdk.TextContent).Text, result.IsError
}

// A client that has never logged in to a server sees one tool, notes__login. A call of it asks the
// user to log in, and ends when that is done; the tools of the server are then listed.
func TestLoginTool_FirstLogin(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		for _, over := range []string{"HTTP", "stdio"} {
			t.Run(revision+" over "+over, func(t *testing.T) {
				t.Parallel()
				f := startFirstLogin(t, revision, over, true,
					func(b *backend) { b.Tools = map[string]any{"pin": "block"} },
					oidctest.ServerOptions{Tools: []string{"login", "read"}})
				f.wantTools(t, "notes__login")
				want := "Logged in to notes. Number of its tools: 0." // none of them is approved
				if text, isError := f.call(t); isError || text != want {
					t.Errorf("the call ended with %q", text)
				}
				f.wantChanged(t)
				f.wantTools(t)
				if n := len(f.p.Calls()); n != 0 {
					t.Errorf("%d calls at the server", n)
				}
			})
			t.Run(revision+" over "+over+", without pins", func(t *testing.T) {
				t.Parallel()
				f := startFirstLogin(t, revision, over, true, func(*backend) {},
					oidctest.ServerOptions{Tools: []string{"login", "read"}})
				f.wantTools(t, "notes__login")
				f.s.run("tools").expect(t, 1, "3 tools", "gateway login notes")
				want := "Logged in to notes. Number of its tools: 2."
				if text, isError := f.call(t); isError || text != want {
					t.Errorf("the call ended with %q", text)
				}
				f.wantChanged(t)
				f.wantTools(t, "login", "read")
				if n := len(f.p.Calls()); n != 0 {
					t.Errorf("%d calls at the server", n)
				}
				err := callSucceeds(t.Context(), f.ClientSession, "login",
					map[string]any{"id": "1"})
				if err != nil || f.p.Executions("1") != 1 {
					t.Errorf("the tool login of the server: %v", err)
				}
				f.s.run("check").expect(t, 0, "protected/1")
			})
		}
	}
}

// wantChanged waits for a list_changed notification. A modern client that does not listen gets
// none.
func (f *firstLogin) wantChanged(t *testing.T) {
	t.Helper()
	if f.InitializeResult().ProtocolVersion != legacyRevision {
		return
	}
	select {
	case <-f.changed:
	case <-time.After(waitTimeout):
		t.Error("no list_changed notification")
	}
}

// A client that cannot be asked gets an error with the link and the command. With either, the
// tools are listed.
func TestLoginTool_ClientWithoutElicitation(t *testing.T) {
	t.Parallel()
	for _, revision := range []string{legacyRevision, modernRevision} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			f := startFirstLogin(t, revision, "HTTP", false, func(*backend) {},
				oidctest.ServerOptions{})
			text, isError := f.call(t)
			_, link, ok := strings.Cut(text, "open ")
			link, _, _ = strings.Cut(link, " ")
			if !ok || !isError || !strings.Contains(text, "gateway login notes") {
				t.Fatalf("the call ended with %q", text)
			}
			if err := openStartPage(t.Context(), link); err != nil {
				t.Fatal(err)
			}
			if !poll(loginNoticed, func() bool { return len(f.tools(t)) == 2 }) {
				t.Errorf("listed %q", f.tools(t))
			}
			f.wantTools(t, "read", "write")
		})
	}
}

// tools.deny hides the login tool.
func TestLoginTool_Denied(t *testing.T) {
	t.Parallel()
	f := startFirstLogin(t, legacyRevision, "stdio", true,
		func(b *backend) { b.Tools = map[string]any{"deny": []string{"login"}} },
		oidctest.ServerOptions{})
	f.wantTools(t)
	if text, isError := f.call(t); !isError || !strings.Contains(text, "gateway login notes") {
		t.Errorf("the call ended with %q", text)
	}
	f.s.logIn("notes")
	if !poll(loginNoticed, func() bool { return len(f.tools(t)) == 2 }) {
		t.Errorf("listed %q", f.tools(t))
	}
}
