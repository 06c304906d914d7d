//go:build unix

//lint:file-ignore SA1019 sampling is deprecated, not gone

package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A matrixRun is the work of a client of the matrix at one server or gateway: the features, in
// order, on one connection. N makes the arguments of its calls unique.
type matrixRun struct {
	Cell     string   `json:"cell"`
	URL      string   `json:"url"`
	Features []string `json:"features"`
	N        string   `json:"n"`
	Notes    string   `json:"notes"` // notes file of the server

	Command []string `json:"command"` // instead of a URL
	Env     []string `json:"env"`
	httpSSE bool
}

// An outcome is the result of one feature in one cell.
type outcome struct {
	Cell    string `json:"cell"`
	Feature string `json:"feature"`
	Error   string `json:"error"` // "" = success
}

// A matrixClient is a row of the matrix.
type matrixClient struct {
	name, revision string
	stdio          bool // it starts a command and uses its stdin and stdout
	// run performs all runs at once, and returns the outcome of each feature.
	run func(t testing.TB, revision string, runs []matrixRun) []outcome
}

var matrixClients = slices.Concat(matrixRows(false), matrixRows(true))

func matrixRows(stdio bool) []matrixClient {
	return []matrixClient{
		{"go-sdk 1.8", legacyRevision, stdio, goRunner(dialMatrixGoSDK)},
		{"go-sdk 1.8", modernRevision, stdio, goRunner(dialMatrixGoSDK)},
		{"mcp-go 1.2", legacyRevision, stdio, goRunner(dialMatrixMCPGo)},
		{"mcp-go 1.2", modernRevision, stdio, goRunner(dialMatrixMCPGo)},
		{"npm v1", legacyRevision, stdio, npmRunner("v1")},
		{"npm v2", legacyRevision, stdio, npmRunner("v2")},
		{"npm v2", modernRevision, stdio, npmRunner("v2")},
	}
}

const (
	featureTimeout = 15 * time.Second // for one feature on a busy machine
	cancelTimeout  = 5 * time.Second  // for the arrival of a cancellation
)

// A matrixConn is one connection of a client of a Go SDK.
type matrixConn interface {
	list(context.Context) ([]string, error)
	call(ctx context.Context, tool, n string, progress bool) (string, error)
	subscribe(context.Context, string) error
	close() error
}

// matrixEvents are the notifications that the client receives.
type matrixEvents struct {
	progress, changed, updates chan string
	acknowledged               chan string
	notes                      string // notes file of the server
}

func newMatrixEvents(notes string) matrixEvents {
	return matrixEvents{make(chan string, 1000), make(chan string, 1000), make(chan string, 1000),
		make(chan string, 1000), notes}
}

// awaitEvent waits for the next event.
func awaitEvent(ctx context.Context, what string, events <-chan string) (string, error) {
	select {
	case e := <-events:
		return e, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no %s: %w", what, ctx.Err())
	}
}

// matrixSlots limits the concurrent runs: each may start processes, and clients probe with a
// timeout.
var matrixSlots = make(chan struct{}, 8)

// A matrixDialer connects a client with this revision for a run.
type matrixDialer func(
	ctx context.Context, v matrixRun, revision string, h matrixEvents,
) (matrixConn, error)

// goRunner performs the runs of a client in this process.
func goRunner(dial matrixDialer) func(testing.TB, string, []matrixRun) []outcome {
	return func(t testing.TB, revision string, runs []matrixRun) []outcome {
		var mu sync.Mutex
		var all []outcome
		var running sync.WaitGroup
		for _, v := range runs {
			running.Go(func() {
				found := runGoClient(t, dial, revision, v)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, found...)
			})
		}
		running.Wait()
		return all
	}
}

func runGoClient(t testing.TB, dial matrixDialer, revision string, v matrixRun) (all []outcome) {
	record := func(feature string, err error) {
		o := outcome{Cell: v.Cell, Feature: feature}
		if err != nil {
			o.Error = err.Error()
		}
		all = append(all, o)
	}
	matrixSlots <- struct{}{}
	defer func() { <-matrixSlots }()
	ctx, cancel := context.WithTimeout(t.Context(), featureTimeout)
	defer cancel()
	h := newMatrixEvents(v.Notes)
	conn, err := dial(ctx, v, revision, h)
	for _, feature := range v.Features {
		if err != nil {
			record(feature, fmt.Errorf("connect: %w", err))
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), featureTimeout)
		record(feature, featureChecks[feature](ctx, conn, h, v.N+"-"+feature))
		cancel()
	}
	if err == nil {
		if err := conn.close(); err != nil && !errors.Is(err, context.Canceled) {
			record("close", err)
		}
	}
	return all
}

// features are the columns of the table. They are the same in matrix-client.mjs.
var features = []string{"list", "progress", "cancel", "elicitation", "sampling", "update",
	"list_changed"}

var featureChecks = map[string]func(
	ctx context.Context, c matrixConn, h matrixEvents, n string,
) error{
	"list": func(ctx context.Context, c matrixConn, _ matrixEvents, _ string) error {
		names, err := c.list(ctx)
		if err == nil && !slices.Contains(names, "progress") {
			err = fmt.Errorf("tools: %q", names)
		}
		return err
	},
	"progress": func(ctx context.Context, c matrixConn, h matrixEvents, n string) error {
		type result struct {
			text string
			err  error
		}
		results := make(chan result, 1)
		go func() {
			text, err := c.call(ctx, "progress", n, true)
			results <- result{text, err}
		}()
		for step := 1; step <= 3; step++ {
			select {
			case got := <-h.progress:
				if want := fmt.Sprintf("%d/3", step); got != want {
					return fmt.Errorf("progress %s, want %s", got, want)
				}
			case a := <-results:
				return fmt.Errorf("response before release: %s, %w", a.text, a.err)
			case <-ctx.Done():
				return fmt.Errorf("no progress %d/3", step)
			}
			if err := callExpecting(ctx, c, "release", n, "ok"); err != nil {
				return err
			}
		}
		if a := <-results; a.err != nil || a.text != "done "+n {
			return fmt.Errorf("response %q, %w", a.text, a.err)
		}
		return nil
	},
	"cancel": func(ctx context.Context, c matrixConn, h matrixEvents, n string) error {
		for len(h.progress) > 0 { // discard the progress of a feature that failed
			<-h.progress
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := c.call(ctx, "hang", n, true)
			ended <- err
		}()
		select {
		case <-h.progress:
		case err := <-ended:
			return fmt.Errorf("ended before the cancellation: %w", err)
		case <-ctx.Done():
			return errors.New("no progress")
		}
		cancel()
		<-ended
		if !poll(cancelTimeout,
			func() bool { return slices.Contains(readNotes(h.notes), "cancelled "+n) }) {
			return errors.New("the server did not receive the cancellation")
		}
		return nil
	},
	"elicitation": func(ctx context.Context, c matrixConn, _ matrixEvents, n string) error {
		return callExpecting(ctx, c, "ask", n, "accept Ada")
	},
	"sampling": func(ctx context.Context, c matrixConn, _ matrixEvents, n string) error {
		return callExpecting(ctx, c, "sample", n, "engine")
	},
	"update": func(ctx context.Context, c matrixConn, h matrixEvents, n string) error {
		if err := c.subscribe(ctx, matrixResource); err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		if err := callExpecting(ctx, c, "touch", n, "ok"); err != nil {
			return err
		}
		uri, err := awaitEvent(ctx, "update", h.updates)
		if err == nil && uri != matrixResource {
			err = fmt.Errorf("updated %q", uri)
		}
		return err
	},
	"list_changed": func(ctx context.Context, c matrixConn, h matrixEvents, n string) error {
		for len(h.changed) > 0 {
			<-h.changed
		}
		if err := callExpecting(ctx, c, "grow", n, "ok"); err != nil {
			return err
		}
		_, err := awaitEvent(ctx, "list_changed", h.changed)
		return err
	},
}

// callExpecting calls a tool and checks the text of the result.
func callExpecting(ctx context.Context, c matrixConn, tool, n, want string) error {
	text, err := c.call(ctx, tool, n, false)
	if err != nil {
		return fmt.Errorf("%s: %w", tool, err)
	}
	if text != want {
		return fmt.Errorf("%s: %q, want %q", tool, text, want)
	}
	return nil
}

type matrixGoSDK struct {
	*gosdk.ClientSession
	revision string
	events   matrixEvents
}

func dialMatrixGoSDK(
	ctx context.Context, v matrixRun, revision string, h matrixEvents,
) (matrixConn, error) {
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"},
		&gosdk.ClientOptions{
			ProgressNotificationHandler: func(
				_ context.Context, req *gosdk.ProgressNotificationClientRequest,
			) {
				h.progress <- fmt.Sprintf("%v/%v", req.Params.Progress, req.Params.Total)
			},
			ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) {
				h.changed <- ""
			},
			ResourceUpdatedHandler: func(
				_ context.Context, req *gosdk.ResourceUpdatedNotificationRequest,
			) {
				h.updates <- req.Params.URI
			},
			ElicitationHandler: func(
				context.Context, *gosdk.ElicitRequest,
			) (*gosdk.ElicitResult, error) {
				return &gosdk.ElicitResult{Action: "accept",
					Content: map[string]any{"name": "Ada"}}, nil
			},
			CreateMessageHandler: func(
				context.Context, *gosdk.CreateMessageRequest,
			) (*gosdk.CreateMessageResult, error) {
				return &gosdk.CreateMessageResult{Model: "m", Role: "assistant",
					Content: &gosdk.TextContent{Text: "engine"}}, nil
			},
		})
	var transport gosdk.Transport = &gosdk.StreamableClientTransport{Endpoint: v.URL,
		HTTPClient: separateConnections()}
	switch {
	case v.httpSSE:
		transport = &gosdk.SSEClientTransport{Endpoint: v.URL}
	case v.Command != nil:
		cmd := exec.Command(v.Command[0], v.Command[1:]...)
		cmd.Env = v.Env
		transport = &gosdk.CommandTransport{Command: cmd, TerminateDuration: waitTimeout}
	}
	client.AddReceivingMiddleware(func(next gosdk.MethodHandler) gosdk.MethodHandler {
		return func(ctx context.Context, method string, req gosdk.Request) (gosdk.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				h.acknowledged <- ""
			}
			return next(ctx, method, req)
		}
	})
	session, err := client.Connect(ctx, transport,
		&gosdk.ClientSessionOptions{ProtocolVersion: revision})
	if err == nil && session.InitializeResult().ProtocolVersion != revision {
		err = fmt.Errorf("revision %s", session.InitializeResult().ProtocolVersion)
	}
	c := matrixGoSDK{session, revision, h}
	if err == nil {
		err = c.awaitSubscription(ctx)
	}
	return c, err
}

// awaitSubscription waits until the server has acknowledged a subscriptions/listen request,
// because the SDK's client does not. A legacy session has no such request.
func (c matrixGoSDK) awaitSubscription(ctx context.Context) error {
	if c.revision == legacyRevision {
		return nil
	}
	_, err := awaitEvent(ctx, "acknowledgement", c.events.acknowledged)
	return err
}

func (c matrixGoSDK) list(ctx context.Context) ([]string, error) {
	return gosdkClient{c.ClientSession}.list(ctx)
}
func (c matrixGoSDK) close() error { return c.Close() }

func (c matrixGoSDK) call(ctx context.Context, tool, n string, progress bool) (string, error) {
	params := &gosdk.CallToolParams{Name: tool, Arguments: map[string]any{"n": n}}
	if progress {
		params.SetProgressToken("token " + n)
	}
	res, err := c.CallTool(ctx, params)
	if err != nil {
		return "", err
	}
	return res.Content[0].(*gosdk.TextContent).Text, nil
}

func (c matrixGoSDK) subscribe(ctx context.Context, uri string) error {
	if err := c.Subscribe(ctx, &gosdk.SubscribeParams{URI: uri}); err != nil {
		return err
	}
	return c.awaitSubscription(ctx)
}

type matrixMCPGo struct {
	*mcpgoclient.Client
	revision string
	events   matrixEvents
	filter   mcpgo.SubscriptionFilter
	stop     func()
}

// mcpgoHandlers handle elicitation and sampling for mcp-go.
type mcpgoHandlers struct{}

func (mcpgoHandlers) Elicit(
	context.Context, mcpgo.ElicitationRequest,
) (*mcpgo.ElicitationResult, error) {
	return &mcpgo.ElicitationResult{ElicitationResponse: mcpgo.ElicitationResponse{Action: "accept",
		Content: map[string]any{"name": "Ada"}}}, nil
}

func (mcpgoHandlers) CreateMessage(
	context.Context, mcpgo.CreateMessageRequest,
) (*mcpgo.CreateMessageResult, error) {
	return &mcpgo.CreateMessageResult{Model: "m",
		SamplingMessage: mcpgo.SamplingMessage{Role: "assistant",
			Content: mcpgo.NewTextContent("engine")}}, nil
}

func dialMatrixMCPGo(
	ctx context.Context, v matrixRun, revision string, h matrixEvents,
) (_ matrixConn, err error) {
	transport, listening, err := mcpgoMatrixTransport(v, revision)
	if err != nil {
		return nil, err
	}
	client := mcpgoclient.NewClient(transport, mcpgoclient.WithProtocolVersion(revision),
		mcpgoclient.WithElicitationHandler(mcpgoHandlers{}),
		mcpgoclient.WithSamplingHandler(mcpgoHandlers{}))
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			client.Close()
		}
	}()
	client.OnNotification(func(n mcpgo.JSONRPCNotification) {
		f := n.Params.AdditionalFields
		switch n.Method {
		case "notifications/progress":
			h.progress <- fmt.Sprintf("%v/%v", f["progress"], f["total"])
		case "notifications/tools/list_changed":
			h.changed <- ""
		case "notifications/resources/updated":
			h.updates <- fmt.Sprint(f["uri"])
		case "notifications/subscriptions/acknowledged":
			h.acknowledged <- ""
		}
	})
	req := mcpgo.InitializeRequest{}
	req.Params.ClientInfo = mcpgo.Implementation{Name: "mcpgo", Version: "1.2"}
	req.Params.ProtocolVersion = revision
	if _, err := client.Initialize(ctx, req); err != nil {
		return nil, err
	}
	if client.ProtocolVersion() != revision {
		return nil, fmt.Errorf("revision %s", client.ProtocolVersion())
	}
	if _, err := awaitEvent(ctx, "GET stream", listening); err != nil {
		return nil, err
	}
	c := &matrixMCPGo{Client: client, revision: revision, events: h,
		filter: mcpgo.SubscriptionFilter{ToolsListChanged: true}, stop: func() {}}
	return c, c.listen(ctx)
}

// mcpgoMatrixTransport connects to the server of a run. listening is closed when the standalone
// stream is open.
func mcpgoMatrixTransport(
	v matrixRun, revision string,
) (transport mcpgotransport.Interface, listening <-chan string, err error) {
	web := separateConnections()
	watcher := &standaloneWatcher{RoundTripper: web.Transport, opened: make(chan string)}
	web.Transport = watcher
	if v.Command != nil || revision != legacyRevision {
		watcher.once.Do(func() { close(watcher.opened) })
	}
	client := mcpgotransport.WithHTTPBasicClient(web)
	switch {
	case v.Command != nil:
		transport = mcpgotransport.NewStdioWithOptions(v.Command[0], v.Env, v.Command[1:],
			mcpgotransport.WithCommandFunc(func(
				_ context.Context, command string, env, args []string,
			) (*exec.Cmd, error) {
				cmd := exec.Command(command, args...)
				cmd.Env = env
				return cmd, nil
			}))
	case revision == legacyRevision:
		transport, err = mcpgotransport.NewStreamableHTTP(v.URL, client,
			mcpgotransport.WithContinuousListening())
	default:
		transport, err = mcpgotransport.NewStreamableHTTP(v.URL, client)
	}
	return transport, watcher.opened, err
}

// separateConnections returns an HTTP client for an MCP client that would be a process of its
// own. If several share http.DefaultTransport, closing one of them can abort another one's
// request ("context canceled").
func separateConnections() *http.Client { return &http.Client{Transport: &http.Transport{}} }

// A standaloneWatcher detects that the GET stream of mcp-go's client is open, which the client
// does not report.
type standaloneWatcher struct {
	http.RoundTripper
	once   sync.Once
	opened chan string
}

func (e *standaloneWatcher) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(req)
	if err == nil && req.Method == http.MethodGet && resp.StatusCode == http.StatusOK {
		e.once.Do(func() { close(e.opened) })
	}
	return resp, err
}

// listen replaces the previous subscriptions/listen request, and returns when the server has
// acknowledged the new one.
func (c *matrixMCPGo) listen(ctx context.Context) error {
	if c.revision == legacyRevision {
		return nil
	}
	c.stop()
	var err error
	if c.stop, err = c.ListenAsync(context.WithoutCancel(ctx), c.filter, nil); err != nil {
		return err
	}
	_, err = awaitEvent(ctx, "acknowledgement", c.events.acknowledged)
	return err
}

func (c *matrixMCPGo) list(ctx context.Context) ([]string, error) {
	return mcpgoClient{c.Client}.list(ctx)
}

func (c *matrixMCPGo) close() error {
	c.stop()
	return c.Close()
}

func (c *matrixMCPGo) call(ctx context.Context, tool, n string, progress bool) (string, error) {
	req := mcpgo.CallToolRequest{}
	req.Params.Name, req.Params.Arguments = tool, map[string]any{"n": n}
	if progress {
		req.Params.Meta = &mcpgo.Meta{ProgressToken: "token " + n}
	}
	res, err := c.CallTool(ctx, req)
	if err != nil {
		return "", err
	}
	return res.Content[0].(mcpgo.TextContent).Text, nil
}

func (c *matrixMCPGo) subscribe(ctx context.Context, uri string) error {
	if c.revision == modernRevision {
		c.filter.ResourceSubscriptions = append(c.filter.ResourceSubscriptions, uri)
		return c.listen(ctx)
	}
	req := mcpgo.SubscribeRequest{}
	req.Params.URI = uri
	return c.Subscribe(ctx, req)
}

// npmRunner performs the runs of a client in Node.
func npmRunner(version string) func(testing.TB, string, []matrixRun) []outcome {
	return func(t testing.TB, revision string, runs []matrixRun) []outcome {
		ctx, cancel := context.WithTimeout(t.Context(),
			time.Duration(len(features)+1)*featureTimeout)
		defer cancel()
		var in bytes.Buffer
		for _, v := range runs {
			line, err := json.Marshal(v)
			if err != nil {
				t.Error(err)
			}
			in.Write(append(line, '\n'))
		}
		cmd := exec.CommandContext(ctx, node(t), "testdata/matrix-client.mjs", version, revision)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		cmd.Stdin = &in
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("matrix-client.mjs %s %s: %v\n%.4000s", version, revision, err,
				complaints.String())
		}
		var all []outcome
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			var o outcome
			if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
				t.Errorf("matrix-client.mjs: %v: %s", err, lines.Bytes())
			}
			all = append(all, o)
		}
		return all
	}
}
