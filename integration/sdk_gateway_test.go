//go:build unix

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

// An sdkClient is a client of an SDK, reduced to the methods that the test needs. Both SDKs can
// request a revision.
type sdkClient interface {
	revision() string
	list(context.Context) ([]string, error)
	call(ctx context.Context, tool, token string) (text string, err error) // token may be empty
	ping(context.Context) error
	close() error
}

// events are the notifications that a client receives.
type events struct {
	progress  chan string // "token n/total"
	changed   chan struct{}
	listening chan string // one value for each acknowledged subscriptions/listen
}

func newEvents() events {
	return events{make(chan string, 100), make(chan struct{}, 100), make(chan string, 100)}
}

type gosdkClient struct{ *gosdk.ClientSession }

// dialGoSDK connects the official SDK's client. Without a revision the client negotiates, and sends
// server/discover first.
func dialGoSDK(ctx context.Context, cmd *exec.Cmd, revision string, ev events) (sdkClient, error) {
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"},
		&gosdk.ClientOptions{
			ProgressNotificationHandler: func(
				_ context.Context, req *gosdk.ProgressNotificationClientRequest,
			) {
				ev.progress <- fmt.Sprintf("%v %v/%v", req.Params.ProgressToken,
					req.Params.Progress, req.Params.Total)
			},
			ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) {
				ev.changed <- struct{}{}
			},
		})
	var opts *gosdk.ClientSessionOptions
	if revision != "" {
		opts = &gosdk.ClientSessionOptions{ProtocolVersion: revision}
	}
	session, err := client.Connect(ctx, &gosdk.CommandTransport{Command: cmd,
		TerminateDuration: 15 * time.Second}, opts)
	return gosdkClient{session}, err
}

func (c gosdkClient) revision() string { return c.InitializeResult().ProtocolVersion }

func (c gosdkClient) list(ctx context.Context) ([]string, error) {
	var names []string
	for tool, err := range c.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

func (c gosdkClient) call(ctx context.Context, tool, token string) (string, error) {
	params := &gosdk.CallToolParams{Name: tool, Arguments: map[string]any{"q": "<go>"}}
	if token != "" {
		params.SetProgressToken(token)
	}
	res, err := c.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	return res.Content[0].(*gosdk.TextContent).Text, nil
}

func (c gosdkClient) ping(ctx context.Context) error { return c.Ping(ctx, nil) }
func (c gosdkClient) close() error                   { return c.Close() }

type mcpgoClient struct{ *mcpgoclient.Client }

func dialMCPGo(ctx context.Context, cmd *exec.Cmd, revision string, ev events) (sdkClient, error) {
	stdio := mcpgotransport.NewStdioWithOptions(cmd.Path, cmd.Env, cmd.Args[1:],
		mcpgotransport.WithCommandFunc(func(
			context.Context, string, []string, []string,
		) (*exec.Cmd, error) {
			return cmd, nil
		}))
	var opts []mcpgoclient.ClientOption
	if revision != "" {
		opts = append(opts, mcpgoclient.WithProtocolVersion(revision))
	}
	client := mcpgoclient.NewClient(stdio, opts...)
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	client.OnNotification(func(n mcpgo.JSONRPCNotification) {
		f := n.Params.AdditionalFields
		switch n.Method {
		case "notifications/progress":
			ev.progress <- fmt.Sprintf("%v %v/%v", f["progressToken"], f["progress"], f["total"])
		case "notifications/tools/list_changed":
			ev.changed <- struct{}{}
		case "notifications/subscriptions/acknowledged":
			ev.listening <- ""
		}
	})
	req := mcpgo.InitializeRequest{}
	req.Params.ClientInfo = mcpgo.Implementation{Name: "mcpgo", Version: "1.2"}
	req.Params.ProtocolVersion = revision
	if _, err := client.Initialize(ctx, req); err != nil {
		return nil, err
	}
	c := mcpgoClient{client}
	return c, c.listen(ctx, ev)
}

// listen subscribes to changes, and returns when the server has acknowledged that. In the modern
// generation mcp-go, unlike the go-sdk, does not do this by itself; legacy clients do not need
// it.
func (c mcpgoClient) listen(ctx context.Context, ev events) error {
	if c.revision() != modernRevision {
		return nil
	}
	filter := c.PendingSubscriptionFilter()
	filter.ToolsListChanged = true
	if _, err := c.ListenAsync(context.WithoutCancel(ctx), filter, nil); err != nil {
		return err
	}
	_, err := awaitEvent(ctx, "acknowledgement", ev.listening)
	return err
}

func (c mcpgoClient) revision() string { return c.ProtocolVersion() }

func (c mcpgoClient) list(ctx context.Context) ([]string, error) {
	res, err := c.ListTools(ctx, mcpgo.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range res.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (c mcpgoClient) call(ctx context.Context, tool, token string) (string, error) {
	req := mcpgo.CallToolRequest{}
	req.Params.Name = tool
	req.Params.Arguments = map[string]any{"q": "<go>"}
	if token != "" {
		req.Params.Meta = &mcpgo.Meta{ProgressToken: token}
	}
	res, err := c.CallTool(ctx, req)
	if err != nil {
		return "", err
	}
	return res.Content[0].(mcpgo.TextContent).Text, nil
}

//lint:ignore SA1019 the revisions that are tested here have a ping
func (c mcpgoClient) ping(ctx context.Context) error { return c.Ping(ctx) }

func (c mcpgoClient) close() error { return c.Close() }

type dialer func(context.Context, *exec.Cmd, string, events) (sdkClient, error)

// TestSDKClientsInEveryRevision runs the clients of both SDKs, in each legacy revision and in
// the revision that they negotiate, which is modern, with a gateway in front of the servers of
// both SDKs.
func TestSDKClientsInEveryRevision(t *testing.T) {
	t.Parallel()
	for _, client := range []struct {
		name string
		dial dialer
	}{{"gosdk", dialGoSDK}, {"mcpgo", dialMCPGo}} {
		for _, revision := range append(slices.Clone(revisions), "") {
			t.Run(client.name+"/"+revision, func(t *testing.T) {
				t.Parallel()
				notes := map[string]string{}
				for _, part := range []string{"gosdk", "mcpgo"} {
					notes[part] = filepath.Join(t.TempDir(), "notes")
				}
				s := newSetup(t, nil, helperBackend("gosdk", "gosdk", notes["gosdk"]),
					helperBackend("mcpgo", "mcpgo", notes["mcpgo"]))
				testSDKClient(t, s, client.dial, revision, notes)
			})
		}
	}
}

func testSDKClient(t *testing.T, s *setup, dial dialer, revision string, notes map[string]string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	defer cancel()
	cmd := exec.Command(gateway(t), "-c", s.config)
	cmd.Env, cmd.Dir = s.env(), s.dir
	ev := newEvents()
	c, err := dial(ctx, cmd, revision, ev)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill() }) // for tests that fail early
	// Both prefer the modern one.
	if want := cmp.Or(revision, modernRevision); c.revision() != want {
		t.Errorf("revision %s, want %s", c.revision(), want)
	}

	want := []string{"echo", "grow", "hold", "mcpgo__echo", "mcpgo__grow", "mcpgo__hold",
		"mcpgo__release", "mcpgo__steps", "release", "steps"}
	if got := mustList(ctx, t, c); !slices.Equal(got, want) {
		t.Fatalf("tools: %q\nwant: %q", got, want)
	}
	for _, server := range []struct{ name, prefix string }{{"gosdk", ""}, {"mcpgo", "mcpgo__"}} {
		text, err := c.call(ctx, server.prefix+"echo", "")
		if err != nil || !strings.HasPrefix(text, server.name+" {") ||
			!strings.Contains(text, `"q"`) {
			t.Errorf("%secho: %q, %v", server.prefix, text, err)
		}

		// The call waits until its progress has arrived: progress is forwarded while the call
		// runs.
		token := "token of " + server.name
		ended := startCall(ctx, c, server.prefix+"steps", token)
		for n := 1; n <= 3; n++ {
			if got, want := next(t, "progress", ev.progress),
				fmt.Sprintf("%s %d/3", token, n); got != want {
				t.Errorf("progress %q, want %q", got, want)
			}
		}
		releaseSteps(ctx, t, c, server.prefix, ended)
		// Without a progress token.
		releaseSteps(ctx, t, c, server.prefix, startCall(ctx, c, server.prefix+"steps", ""))

		callCtx, cancelCall := context.WithCancel(ctx)
		ended = startCall(callCtx, c, server.prefix+"hold", "hold "+token)
		if got, want := next(t, "progress", ev.progress), "hold "+token+" 1/3"; got != want {
			// This also checks that the call without a token had no progress.
			t.Errorf("progress %q, want %q", got, want)
		}
		cancelCall()
		if err := next(t, "end of the cancelled call", ended).err; !errors.Is(err,
			context.Canceled) {
			t.Errorf("cancelled call: %v", err)
		}
		awaitNote(t, notes[server.name], "cancelled")
		if err := c.ping(ctx); err != nil {
			t.Errorf("ping: %v", err)
		}

		for len(ev.changed) > 0 {
			<-ev.changed
		}
		if text, err := c.call(ctx, server.prefix+"grow", ""); err != nil || text != "ok" {
			t.Errorf("%sgrow: %q, %v", server.prefix, text, err)
		}
		next(t, "list_changed", ev.changed)
		if got := mustList(ctx, t, c); !slices.Contains(got, server.prefix+"grown") {
			t.Errorf("after list_changed: %q", got)
		}
		if text, err := c.call(ctx, server.prefix+"grown", ""); err != nil || text != "grown" {
			t.Errorf("%sgrown: %q, %v", server.prefix, text, err)
		}
	}
	if err := c.close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	outcomes := map[string]int{}
	ids := map[string]bool{}
	for _, r := range s.records() {
		r.checkComplete(t)
		outcomes[r.Outcome]++
		key := r.Backend + " " + string(r.BackendID)
		if ids[key] {
			t.Errorf("backend_id %s came twice", key)
		}
		ids[key] = true
	}
	// For each server: echo, steps and release twice, grow and grown; and hold.
	if outcomes["ok"] != 14 || outcomes["cancelled"] != 2 || len(outcomes) != 2 {
		b, _ := json.Marshal(outcomes)
		t.Errorf("audited outcomes: %s", b)
	}
}

// A callResult is the result of a call.
type callResult struct {
	text string
	err  error
}

// startCall makes a call without waiting for the result.
func startCall(ctx context.Context, c sdkClient, tool, token string) <-chan callResult {
	ended := make(chan callResult, 1)
	go func() {
		text, err := c.call(ctx, tool, token)
		ended <- callResult{text, err}
	}()
	return ended
}

// releaseSteps lets a call of steps complete.
func releaseSteps(
	ctx context.Context, t *testing.T, c sdkClient, prefix string, ended <-chan callResult,
) {
	t.Helper()
	if text, err := c.call(ctx, prefix+"release", ""); err != nil || text != "ok" {
		t.Errorf("%srelease: %q, %v", prefix, text, err)
	}
	if end := next(t, "end of steps", ended); end.err != nil || end.text != "done" {
		t.Errorf("%ssteps: %q, %v", prefix, end.text, end.err)
	}
}

func mustList(ctx context.Context, t *testing.T, c sdkClient) []string {
	t.Helper()
	names, err := c.list(ctx)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	slices.Sort(names)
	return names
}

// next receives a value within waitTimeout.
func next[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(waitTimeout):
		t.Fatalf("no %s within %v", what, waitTimeout)
		panic("unreachable")
	}
}
