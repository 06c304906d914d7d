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

// An errand is what a client of the matrix does at one server or gateway: the deeds, in order, on one connection. n
// makes the arguments of its calls its own.
type errand struct {
	Cell  string   `json:"cell"`
	URL   string   `json:"url"`
	Deeds []string `json:"deeds"`
	N     string   `json:"n"`
	Notes string   `json:"notes"` // the server's

	Command []string `json:"command"` // instead of a URL
	Env     []string `json:"env"`
	sse     bool
}

// An outcome is how one deed of one cell went.
type outcome struct {
	Cell  string `json:"cell"`
	Deed  string `json:"deed"`
	Error string `json:"error"` // "" = it went well
}

// A matrixClient is a row of the matrix.
type matrixClient struct {
	name, era string
	pipe      bool // it starts what it speaks to, and speaks to its stdin and stdout
	// run runs all errands at once, and says how each deed went.
	run func(t testing.TB, era string, errands []errand) []outcome
}

var matrixClients = slices.Concat(matrixRows(false), matrixRows(true))

func matrixRows(pipe bool) []matrixClient {
	return []matrixClient{
		{"go-sdk 1.8", sessionEra, pipe, goErrands(dialMatrixGoSDK)},
		{"go-sdk 1.8", statelessEra, pipe, goErrands(dialMatrixGoSDK)},
		{"mcp-go 1.2", sessionEra, pipe, goErrands(dialMatrixMCPGo)},
		{"mcp-go 1.2", statelessEra, pipe, goErrands(dialMatrixMCPGo)},
		{"npm v1", sessionEra, pipe, npmErrands("v1")},
		{"npm v2", sessionEra, pipe, npmErrands("v2")},
		{"npm v2", statelessEra, pipe, npmErrands("v2")},
	}
}

const (
	deedPatience   = 15 * time.Second // how long a deed may take on a busy machine
	cancelPatience = 5 * time.Second  // how long a cancellation may be on its way
)

// A matrixGuest is one of the Go SDKs' clients on one connection.
type matrixGuest interface {
	list(context.Context) ([]string, error)
	call(ctx context.Context, tool, n string, progress bool) (string, error)
	subscribe(context.Context, string) error
	close() error
}

// matrixEvents are what it hears besides answers.
type matrixEvents struct {
	progress, changed, updates chan string
	acknowledged               chan string
	notes                      string // the server's
}

func newMatrixEvents(notes string) matrixEvents {
	return matrixEvents{make(chan string, 1000), make(chan string, 1000), make(chan string, 1000), make(chan string, 1000), notes}
}

// await waits for the next event.
func await(ctx context.Context, what string, events <-chan string) (string, error) {
	select {
	case e := <-events:
		return e, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no %s: %w", what, ctx.Err())
	}
}

// matrixPlaces bounds the errands that run at once: each may start processes, and clients probe with a time limit.
var matrixPlaces = make(chan struct{}, 8)

// goErrands is for a client in this process.
func goErrands(dial func(context.Context, errand, string, matrixEvents) (matrixGuest, error)) func(testing.TB, string, []errand) []outcome {
	return func(t testing.TB, era string, errands []errand) []outcome {
		var mu sync.Mutex
		var all []outcome
		var running sync.WaitGroup
		for _, v := range errands {
			running.Go(func() {
				found := goErrand(t, dial, era, v)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, found...)
			})
		}
		running.Wait()
		return all
	}
}

func goErrand(t testing.TB, dial func(context.Context, errand, string, matrixEvents) (matrixGuest, error), era string, v errand) (all []outcome) {
	tell := func(deed string, err error) {
		o := outcome{Cell: v.Cell, Deed: deed}
		if err != nil {
			o.Error = err.Error()
		}
		all = append(all, o)
	}
	matrixPlaces <- struct{}{}
	defer func() { <-matrixPlaces }()
	ctx, cancel := context.WithTimeout(t.Context(), deedPatience)
	defer cancel()
	h := newMatrixEvents(v.Notes)
	guest, err := dial(ctx, v, era, h)
	for _, deed := range v.Deeds {
		if err != nil {
			tell(deed, fmt.Errorf("connect: %w", err))
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), deedPatience)
		tell(deed, matrixDeeds[deed](ctx, guest, h, v.N+"-"+deed))
		cancel()
	}
	if err == nil {
		if err := guest.close(); err != nil && !errors.Is(err, context.Canceled) {
			tell("close", err)
		}
	}
	return all
}

// deeds are the columns of the table. What they are is the same in matrix-client.mjs.
var deeds = []string{"list", "progress", "cancel", "elicitation", "sampling", "update", "list_changed"}

var matrixDeeds = map[string]func(ctx context.Context, c matrixGuest, h matrixEvents, n string) error{
	"list": func(ctx context.Context, c matrixGuest, _ matrixEvents, _ string) error {
		names, err := c.list(ctx)
		if err == nil && !slices.Contains(names, "progress") {
			err = fmt.Errorf("tools: %q", names)
		}
		return err
	},
	"progress": func(ctx context.Context, c matrixGuest, h matrixEvents, n string) error {
		type answer struct {
			text string
			err  error
		}
		answered := make(chan answer, 1)
		go func() {
			text, err := c.call(ctx, "progress", n, true)
			answered <- answer{text, err}
		}()
		for step := 1; step <= 3; step++ {
			select {
			case got := <-h.progress:
				if want := fmt.Sprintf("%d/3", step); got != want {
					return fmt.Errorf("progress %s, not %s", got, want)
				}
			case a := <-answered:
				return fmt.Errorf("answered before it was released: %s, %w", a.text, a.err)
			case <-ctx.Done():
				return fmt.Errorf("no progress %d/3", step)
			}
			if err := say(ctx, c, "release", n, "ok"); err != nil {
				return err
			}
		}
		if a := <-answered; a.err != nil || a.text != "done "+n {
			return fmt.Errorf("answered %q, %w", a.text, a.err)
		}
		return nil
	},
	"cancel": func(ctx context.Context, c matrixGuest, h matrixEvents, n string) error {
		for len(h.progress) > 0 { // of a deed that failed
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
			return fmt.Errorf("ended before it was cancelled: %w", err)
		case <-ctx.Done():
			return errors.New("no progress")
		}
		cancel()
		<-ended
		if !poll(cancelPatience, func() bool { return slices.Contains(notesOf(h.notes), "cancelled "+n) }) {
			return errors.New("the server was not told of the cancellation")
		}
		return nil
	},
	"elicitation": func(ctx context.Context, c matrixGuest, _ matrixEvents, n string) error {
		return say(ctx, c, "ask", n, "accept Ada")
	},
	"sampling": func(ctx context.Context, c matrixGuest, _ matrixEvents, n string) error {
		return say(ctx, c, "sample", n, "engine")
	},
	"update": func(ctx context.Context, c matrixGuest, h matrixEvents, n string) error {
		if err := c.subscribe(ctx, matrixNews); err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		if err := say(ctx, c, "touch", n, "ok"); err != nil {
			return err
		}
		uri, err := await(ctx, "update", h.updates)
		if err == nil && uri != matrixNews {
			err = fmt.Errorf("updated %q", uri)
		}
		return err
	},
	"list_changed": func(ctx context.Context, c matrixGuest, h matrixEvents, n string) error {
		for len(h.changed) > 0 {
			<-h.changed
		}
		if err := say(ctx, c, "grow", n, "ok"); err != nil {
			return err
		}
		_, err := await(ctx, "list_changed", h.changed)
		return err
	},
}

// say calls a tool, which has to answer so.
func say(ctx context.Context, c matrixGuest, tool, n, want string) error {
	text, err := c.call(ctx, tool, n, false)
	if err != nil {
		return fmt.Errorf("%s: %w", tool, err)
	}
	if text != want {
		return fmt.Errorf("%s: %q, not %q", tool, text, want)
	}
	return nil
}

type matrixGoSDK struct {
	*gosdk.ClientSession
	era string
	h   matrixEvents
}

func dialMatrixGoSDK(ctx context.Context, v errand, era string, h matrixEvents) (matrixGuest, error) {
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"}, &gosdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *gosdk.ProgressNotificationClientRequest) {
			h.progress <- fmt.Sprintf("%v/%v", req.Params.Progress, req.Params.Total)
		},
		ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) { h.changed <- "" },
		ResourceUpdatedHandler: func(_ context.Context, req *gosdk.ResourceUpdatedNotificationRequest) { h.updates <- req.Params.URI },
		ElicitationHandler: func(context.Context, *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
			return &gosdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		CreateMessageHandler: func(context.Context, *gosdk.CreateMessageRequest) (*gosdk.CreateMessageResult, error) {
			return &gosdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &gosdk.TextContent{Text: "engine"}}, nil
		},
	})
	var transport gosdk.Transport = &gosdk.StreamableClientTransport{Endpoint: v.URL, HTTPClient: ownConnections()}
	switch {
	case v.sse:
		transport = &gosdk.SSEClientTransport{Endpoint: v.URL}
	case v.Command != nil:
		cmd := exec.Command(v.Command[0], v.Command[1:]...)
		cmd.Env = v.Env
		transport = &gosdk.CommandTransport{Command: cmd, TerminateDuration: patience}
	}
	client.AddReceivingMiddleware(func(next gosdk.MethodHandler) gosdk.MethodHandler {
		return func(ctx context.Context, method string, req gosdk.Request) (gosdk.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				h.acknowledged <- ""
			}
			return next(ctx, method, req)
		}
	})
	session, err := client.Connect(ctx, transport, &gosdk.ClientSessionOptions{ProtocolVersion: era})
	if err == nil && session.InitializeResult().ProtocolVersion != era {
		err = fmt.Errorf("revision %s", session.InitializeResult().ProtocolVersion)
	}
	c := matrixGoSDK{session, era, h}
	if err == nil {
		err = c.awaitSubscription(ctx)
	}
	return c, err
}

// awaitSubscription waits until the server has acknowledged a subscriptions/listen request, for
// which the SDK's client does not wait. A session has no such request.
func (c matrixGoSDK) awaitSubscription(ctx context.Context) error {
	if c.era == sessionEra {
		return nil
	}
	_, err := await(ctx, "acknowledgement", c.h.acknowledged)
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
	era    string
	h      matrixEvents
	filter mcpgo.SubscriptionFilter
	stop   func()
}

// mcpgoAnswers are what mcp-go asks.
type mcpgoAnswers struct{}

func (mcpgoAnswers) Elicit(context.Context, mcpgo.ElicitationRequest) (*mcpgo.ElicitationResult, error) {
	return &mcpgo.ElicitationResult{ElicitationResponse: mcpgo.ElicitationResponse{Action: "accept", Content: map[string]any{"name": "Ada"}}}, nil
}

func (mcpgoAnswers) CreateMessage(context.Context, mcpgo.CreateMessageRequest) (*mcpgo.CreateMessageResult, error) {
	return &mcpgo.CreateMessageResult{Model: "m", SamplingMessage: mcpgo.SamplingMessage{Role: "assistant", Content: mcpgo.NewTextContent("engine")}}, nil
}

func dialMatrixMCPGo(ctx context.Context, v errand, era string, h matrixEvents) (_ matrixGuest, err error) {
	transport, listening, err := mcpgoRoad(v, era)
	if err != nil {
		return nil, err
	}
	client := mcpgoclient.NewClient(transport, mcpgoclient.WithProtocolVersion(era),
		mcpgoclient.WithElicitationHandler(mcpgoAnswers{}), mcpgoclient.WithSamplingHandler(mcpgoAnswers{}))
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
	req.Params.ProtocolVersion = era
	if _, err := client.Initialize(ctx, req); err != nil {
		return nil, err
	}
	if client.ProtocolVersion() != era {
		return nil, fmt.Errorf("revision %s", client.ProtocolVersion())
	}
	if _, err := await(ctx, "GET stream", listening); err != nil {
		return nil, err
	}
	c := &matrixMCPGo{Client: client, era: era, h: h, filter: mcpgo.SubscriptionFilter{ToolsListChanged: true}, stop: func() {}}
	return c, c.listen(ctx)
}

// mcpgoRoad leads to where the errand is. listening is closed when what the server says of itself is heard.
func mcpgoRoad(v errand, era string) (road mcpgotransport.Interface, listening <-chan string, err error) {
	web := ownConnections()
	ear := &mcpgoEar{RoundTripper: web.Transport, heard: make(chan string)}
	web.Transport = ear
	if v.Command != nil || era != sessionEra {
		ear.once.Do(func() { close(ear.heard) })
	}
	own := mcpgotransport.WithHTTPBasicClient(web)
	switch {
	case v.Command != nil:
		road = mcpgotransport.NewStdioWithOptions(v.Command[0], v.Env, v.Command[1:],
			mcpgotransport.WithCommandFunc(func(_ context.Context, command string, env, args []string) (*exec.Cmd, error) {
				cmd := exec.Command(command, args...)
				cmd.Env = env
				return cmd, nil
			}))
	case era == sessionEra:
		road, err = mcpgotransport.NewStreamableHTTP(v.URL, own, mcpgotransport.WithContinuousListening())
	default:
		road, err = mcpgotransport.NewStreamableHTTP(v.URL, own)
	}
	return road, ear.heard, err
}

// ownConnections is for a client that would be a process of its own. Where several share http.DefaultTransport, one that
// closes can break off another's request ("context canceled").
func ownConnections() *http.Client { return &http.Client{Transport: &http.Transport{}} }

// mcpgoEar finds out when a GET stream of mcp-go's client is open, which the client does not tell.
type mcpgoEar struct {
	http.RoundTripper
	once  sync.Once
	heard chan string
}

func (e *mcpgoEar) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(req)
	if err == nil && req.Method == http.MethodGet && resp.StatusCode == http.StatusOK {
		e.once.Do(func() { close(e.heard) })
	}
	return resp, err
}

// listen listens, in place of what was listened to before, and returns when the server has acknowledged it.
func (c *matrixMCPGo) listen(ctx context.Context) error {
	if c.era == sessionEra {
		return nil
	}
	c.stop()
	var err error
	if c.stop, err = c.ListenAsync(context.WithoutCancel(ctx), c.filter, nil); err != nil {
		return err
	}
	_, err = await(ctx, "acknowledgement", c.h.acknowledged)
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
	if c.era == statelessEra {
		c.filter.ResourceSubscriptions = append(c.filter.ResourceSubscriptions, uri)
		return c.listen(ctx)
	}
	req := mcpgo.SubscribeRequest{}
	req.Params.URI = uri
	return c.Subscribe(ctx, req)
}

// npmErrands is for a client in Node.
func npmErrands(version string) func(testing.TB, string, []errand) []outcome {
	return func(t testing.TB, era string, errands []errand) []outcome {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(deeds)+1)*deedPatience)
		defer cancel()
		var in bytes.Buffer
		for _, v := range errands {
			line, err := json.Marshal(v)
			if err != nil {
				t.Error(err)
			}
			in.Write(append(line, '\n'))
		}
		cmd := exec.CommandContext(ctx, node(t), "testdata/matrix-client.mjs", version, era)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		cmd.Stdin = &in
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("matrix-client.mjs %s %s: %v\n%.4000s", version, era, err, complaints.String())
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
