//go:build unix

//lint:file-ignore SA1019 sampling, roots and logging are what the session era has, and this tests it

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// newAsker is the go-sdk's server with the tools of newGoSDKServer, and with all that a session can have besides: the
// tool ask asks the client for a name and then its model for a word; elicit asks less; log logs; touch changes the resource asker://news; there is
// a prompt, greet, whose argument can be completed.
func newAsker() *gosdk.Server {
	nothing := func(context.Context, *gosdk.SubscribeRequest) error { return nil }
	server := newGoSDKServer(&gosdk.ServerOptions{
		SubscribeHandler:   nothing,
		UnsubscribeHandler: func(context.Context, *gosdk.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, req *gosdk.CompleteRequest) (*gosdk.CompleteResult, error) {
			return &gosdk.CompleteResult{Completion: gosdk.CompletionResultDetails{Values: []string{req.Params.Argument.Value + "da"}}}, nil
		},
	})
	text := func(s string) *gosdk.CallToolResult {
		return &gosdk.CallToolResult{Content: []gosdk.Content{&gosdk.TextContent{Text: s}}}
	}
	add := func(name string, h gosdk.ToolHandler) {
		server.AddTool(&gosdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, h)
	}
	add("ask", func(ctx context.Context, req *gosdk.CallToolRequest) (*gosdk.CallToolResult, error) {
		who, err := req.Session.Elicit(ctx, &gosdk.ElicitParams{
			Message:         "who?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
		})
		if err != nil {
			return nil, err
		}
		word, err := req.Session.CreateMessage(ctx, &gosdk.CreateMessageParams{
			MaxTokens: 1, Messages: []*gosdk.SamplingMessage{{Role: "user", Content: &gosdk.TextContent{Text: "a word"}}},
		})
		if err != nil {
			return nil, err
		}
		return text(fmt.Sprint(who.Action, " ", who.Content["name"], " ", word.Content.(*gosdk.TextContent).Text)), nil
	})
	add("elicit", func(ctx context.Context, req *gosdk.CallToolRequest) (*gosdk.CallToolResult, error) {
		note("elicits")
		who, err := req.Session.Elicit(ctx, &gosdk.ElicitParams{Message: "well?"})
		if err != nil {
			return nil, err
		}
		return text(who.Action), nil
	})
	add("log", func(ctx context.Context, req *gosdk.CallToolRequest) (*gosdk.CallToolResult, error) {
		for _, level := range []gosdk.LoggingLevel{"info", "error"} {
			if err := req.Session.Log(ctx, &gosdk.LoggingMessageParams{Level: level, Logger: "l", Data: string(level)}); err != nil {
				return nil, err
			}
		}
		return text("ok"), nil
	})
	add("touch", func(ctx context.Context, req *gosdk.CallToolRequest) (*gosdk.CallToolResult, error) {
		return text("ok"), server.ResourceUpdated(ctx, &gosdk.ResourceUpdatedNotificationParams{URI: "asker://news"})
	})
	server.AddResource(&gosdk.Resource{Name: "news", URI: "asker://news"},
		func(context.Context, *gosdk.ReadResourceRequest) (*gosdk.ReadResourceResult, error) {
			return &gosdk.ReadResourceResult{Contents: []*gosdk.ResourceContents{{URI: "asker://news", Text: "no news"}}}, nil
		})
	server.AddPrompt(&gosdk.Prompt{Name: "greet", Arguments: []*gosdk.PromptArgument{{Name: "name"}}},
		func(_ context.Context, req *gosdk.GetPromptRequest) (*gosdk.GetPromptResult, error) {
			return &gosdk.GetPromptResult{Messages: []*gosdk.PromptMessage{{
				Role: "user", Content: &gosdk.TextContent{Text: "hello " + req.Params.Arguments["name"]},
			}}}, nil
		})
	return server
}

func playAsker() int { return runGoSDK(newAsker()) }

// A sessionClient is an sdkClient with what the session era has besides tools.
type sessionClient interface {
	sdkClient
	setLevel(context.Context, string) error
	subscribe(context.Context, string) error
	read(context.Context, string) (string, error)
	prompt(ctx context.Context, name, argument string) (string, error)
	complete(ctx context.Context, prompt, value string) ([]string, error)
	canBeAsked() bool
	cancels() bool
}

// hears is what a sessionClient hears besides answers.
type hears struct {
	events
	logs    chan string // "logger level data"
	updates chan string // URIs
	asked   chan string // "elicit message", "sample text"
}

func newHears() hears {
	return hears{newEvents(), make(chan string, 100), make(chan string, 100), make(chan string, 100)}
}

// A visiting dials a gateway that serves HTTP; url is that of /mcp, or of /sse.
type visiting func(ctx context.Context, url, revision string, h hears) (sessionClient, error)

type gosdkSession struct{ gosdkClient }

func visitGoSDK(older bool) visiting {
	return func(ctx context.Context, url, revision string, h hears) (sessionClient, error) {
		client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"}, &gosdk.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, req *gosdk.ProgressNotificationClientRequest) {
				h.progress <- fmt.Sprintf("%v %v/%v", req.Params.ProgressToken, req.Params.Progress, req.Params.Total)
			},
			ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) { h.changed <- struct{}{} },
			LoggingMessageHandler: func(_ context.Context, req *gosdk.LoggingMessageRequest) {
				h.logs <- fmt.Sprintf("%s %s %s", req.Params.Logger, req.Params.Level, req.Params.Data)
			},
			ResourceUpdatedHandler: func(_ context.Context, req *gosdk.ResourceUpdatedNotificationRequest) { h.updates <- req.Params.URI },
			ElicitationHandler: func(_ context.Context, req *gosdk.ElicitRequest) (*gosdk.ElicitResult, error) {
				h.asked <- "elicit " + req.Params.Message
				return &gosdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
			},
			CreateMessageHandler: func(_ context.Context, req *gosdk.CreateMessageRequest) (*gosdk.CreateMessageResult, error) {
				h.asked <- "sample " + req.Params.Messages[0].Content.(*gosdk.TextContent).Text
				return &gosdk.CreateMessageResult{Model: "m", Role: "assistant", Content: &gosdk.TextContent{Text: "engine"}}, nil
			},
		})
		var transport gosdk.Transport = &gosdk.StreamableClientTransport{Endpoint: url, HTTPClient: ownConnections()}
		if older {
			transport = &gosdk.SSEClientTransport{Endpoint: url}
		}
		var opts *gosdk.ClientSessionOptions
		if revision != "" {
			opts = &gosdk.ClientSessionOptions{ProtocolVersion: revision}
		}
		session, err := client.Connect(ctx, transport, opts)
		return gosdkSession{gosdkClient{session}}, err
	}
}

func (c gosdkSession) canBeAsked() bool { return true }
func (c gosdkSession) cancels() bool    { return true }
func (c gosdkSession) setLevel(ctx context.Context, level string) error {
	return c.SetLoggingLevel(ctx, &gosdk.SetLoggingLevelParams{Level: gosdk.LoggingLevel(level)})
}

func (c gosdkSession) subscribe(ctx context.Context, uri string) error {
	return c.Subscribe(ctx, &gosdk.SubscribeParams{URI: uri})
}

func (c gosdkSession) read(ctx context.Context, uri string) (string, error) {
	res, err := c.ReadResource(ctx, &gosdk.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	return res.Contents[0].Text, nil
}

func (c gosdkSession) prompt(ctx context.Context, name, argument string) (string, error) {
	res, err := c.GetPrompt(ctx, &gosdk.GetPromptParams{Name: name, Arguments: map[string]string{"name": argument}})
	if err != nil {
		return "", err
	}
	return res.Messages[0].Content.(*gosdk.TextContent).Text, nil
}

func (c gosdkSession) complete(ctx context.Context, prompt, value string) ([]string, error) {
	res, err := c.Complete(ctx, &gosdk.CompleteParams{
		Ref:      &gosdk.CompleteReference{Type: "ref/prompt", Name: prompt},
		Argument: gosdk.CompleteParamsArgument{Name: "name", Value: value},
	})
	if err != nil {
		return nil, err
	}
	return res.Completion.Values, nil
}

type mcpgoSession struct {
	mcpgoClient
	h     hears
	asked bool
}

func (c mcpgoSession) canBeAsked() bool { return c.asked }
func (c mcpgoSession) cancels() bool    { return false } // over HTTP it hangs up, and says nothing

// Elicit and CreateMessage are what mcp-go asks.
func (h hears) Elicit(_ context.Context, req mcpgo.ElicitationRequest) (*mcpgo.ElicitationResult, error) {
	h.asked <- "elicit " + req.Params.Message
	return &mcpgo.ElicitationResult{ElicitationResponse: mcpgo.ElicitationResponse{Action: "accept", Content: map[string]any{"name": "Ada"}}}, nil
}

func (h hears) CreateMessage(_ context.Context, req mcpgo.CreateMessageRequest) (*mcpgo.CreateMessageResult, error) {
	text, _ := mcpgo.AsTextContent(req.Messages[0].Content)
	if text == nil {
		return nil, fmt.Errorf("sampling without text: %v", req.Messages[0].Content)
	}
	h.asked <- "sample " + text.Text
	return &mcpgo.CreateMessageResult{Model: "m", SamplingMessage: mcpgo.SamplingMessage{Role: "assistant", Content: mcpgo.NewTextContent("engine")}}, nil
}

func visitMCPGo(older bool) visiting {
	return func(ctx context.Context, url, revision string, h hears) (sessionClient, error) {
		var transport mcpgotransport.Interface
		transport, err := mcpgotransport.NewStreamableHTTP(url, mcpgotransport.WithContinuousListening(),
			mcpgotransport.WithHTTPBasicClient(ownConnections()))
		if older {
			transport, err = mcpgotransport.NewSSE(url, mcpgotransport.WithHTTPClient(ownConnections()))
		}
		if err != nil {
			return nil, err
		}
		var opts []mcpgoclient.ClientOption
		if !older { // its HTTP+SSE cannot be asked anything
			opts = append(opts, mcpgoclient.WithElicitationHandler(h), mcpgoclient.WithSamplingHandler(h))
		}
		if revision != "" {
			opts = append(opts, mcpgoclient.WithProtocolVersion(revision))
		}
		client := mcpgoclient.NewClient(transport, opts...)
		if err := client.Start(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
		client.OnNotification(func(n mcpgo.JSONRPCNotification) {
			f := n.Params.AdditionalFields
			switch n.Method {
			case "notifications/progress":
				h.progress <- fmt.Sprintf("%v %v/%v", f["progressToken"], f["progress"], f["total"])
			case "notifications/tools/list_changed":
				h.changed <- struct{}{}
			case "notifications/message":
				h.logs <- fmt.Sprintf("%v %v %v", f["logger"], f["level"], f["data"])
			case "notifications/resources/updated":
				h.updates <- fmt.Sprint(f["uri"])
			case "notifications/subscriptions/acknowledged":
				h.listening <- ""
			}
		})
		req := mcpgo.InitializeRequest{}
		req.Params.ClientInfo = mcpgo.Implementation{Name: "mcpgo", Version: "1.2"}
		req.Params.ProtocolVersion = revision
		if _, err := client.Initialize(ctx, req); err != nil {
			return nil, err
		}
		c := mcpgoSession{mcpgoClient{client}, h, !older}
		return c, c.listen(ctx, h.events)
	}
}

func (c mcpgoSession) setLevel(ctx context.Context, level string) error {
	req := mcpgo.SetLevelRequest{}
	req.Params.Level = mcpgo.LoggingLevel(level)
	return c.SetLevel(ctx, req)
}

func (c mcpgoSession) subscribe(ctx context.Context, uri string) error {
	req := mcpgo.SubscribeRequest{}
	req.Params.URI = uri
	if err := c.Subscribe(ctx, req); err != nil {
		return err
	}
	return c.listen(ctx, c.h.events) // in the stateless era Subscribe only says what to listen to
}

func (c mcpgoSession) read(ctx context.Context, uri string) (string, error) {
	req := mcpgo.ReadResourceRequest{}
	req.Params.URI = uri
	res, err := c.ReadResource(ctx, req)
	if err != nil {
		return "", err
	}
	return res.Contents[0].(mcpgo.TextResourceContents).Text, nil
}

func (c mcpgoSession) prompt(ctx context.Context, name, argument string) (string, error) {
	req := mcpgo.GetPromptRequest{}
	req.Params.Name, req.Params.Arguments = name, map[string]string{"name": argument}
	res, err := c.GetPrompt(ctx, req)
	if err != nil {
		return "", err
	}
	return res.Messages[0].Content.(mcpgo.TextContent).Text, nil
}

func (c mcpgoSession) complete(ctx context.Context, prompt, value string) ([]string, error) {
	req := mcpgo.CompleteRequest{}
	req.Params.Ref = mcpgo.PromptReference{Type: "ref/prompt", Name: prompt}
	req.Params.Argument = mcpgo.CompleteArgument{Name: "name", Value: value}
	res, err := c.Complete(ctx, req)
	if err != nil {
		return nil, err
	}
	return res.Completion.Values, nil
}

// TestSDKClientsOverHTTP is TestSDKClientsInEveryRevision through the HTTP door, with all that a session can have: the
// clients of both SDKs, over streamable HTTP in each revision and the way they choose themselves, and over HTTP+SSE;
// behind the gateway the go-sdk's server, as a child of each session's own and over HTTP.
func TestSDKClientsOverHTTP(t *testing.T) {
	t.Parallel()
	server := newAsker()
	web := httptest.NewServer(gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return server }, nil))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	notes := notesFile(t)
	// The server asks as a server of the session era does, by requests of its own. In the stateless era, which it also
	// speaks, its SDK does not let it, whoever is its client.
	own := actor("own", "asker", notes)
	own.Sharing, own.Era = "session", "legacy"
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, own, backend{Name: "web", URL: web.URL, Era: "legacy"})
	url := s.listen()
	awaitReady(t, url)
	older := strings.TrimSuffix(url, "/mcp") + "/sse"
	for _, c := range []struct {
		name      string
		visit     visiting
		url       string
		revisions []string
		newest    string // what it chooses itself
	}{
		{"gosdk", visitGoSDK(false), url, revisions, statelessEra},
		{"mcpgo", visitMCPGo(false), url, revisions, "2025-11-25"}, // for it listens all the time
		{"gosdk-sse", visitGoSDK(true), older, []string{"2024-11-05"}, "2025-11-25"},
		{"mcpgo-sse", visitMCPGo(true), older, []string{"2024-11-05"}, "2025-11-25"},
	} {
		for _, revision := range append(slices.Clone(c.revisions), "") {
			t.Run(c.name+"/"+revision, func(t *testing.T) {
				testSessionClient(t, c.visit, c.url, revision, cmp.Or(revision, c.newest), notes)
			})
		}
	}
}

// awaitReady waits until the gateway knows what its backends have.
func awaitReady(t testing.TB, url string) {
	t.Helper()
	if !poll(patience, func() bool {
		res, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	}) {
		t.Fatal("the gateway does not become ready")
	}
}

// giveUp begins a call that would not end, and gives it up once it has made progress.
func giveUp(ctx context.Context, t *testing.T, c sessionClient, h hears, tool, token string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := begin(ctx, c, tool, token)
	if got, want := next(t, "progress", h.progress), token+" 1/3"; got != want {
		t.Errorf("progress %q, want %q", got, want)
	}
	cancel()
	// mcp-go sees either that its context is done or that its reader, which has seen that first, has nothing for it.
	err := next(t, "end of the cancelled call", ended).err
	if !errors.Is(err, context.Canceled) && (err == nil || !strings.HasSuffix(err.Error(), ": unexpected nil response")) {
		t.Errorf("cancelled call: %v", err)
	}
}

func testSessionClient(t *testing.T, visit visiting, url, revision, want, notes string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	h := newHears()
	c, err := visit(ctx, url, revision, h)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	if c.revision() != want {
		t.Errorf("revision %s, want %s", c.revision(), want)
	}
	stateless := c.revision() == statelessEra // in which there is neither logging/setLevel nor ping: with its own server it is an error, too
	cancelled := func() int {
		return len(slices.DeleteFunc(notesOf(notes), func(n string) bool { return n != "cancelled" }))
	}
	before := cancelled()
	tools := mustList(ctx, t, c)
	for _, server := range []struct{ name, prefix string }{{"own", ""}, {"web", "web__"}} {
		for _, tool := range []string{"ask", "echo", "grow", "hold", "log", "release", "steps", "touch"} {
			if !slices.Contains(tools, server.prefix+tool) {
				t.Errorf("no %s%s among %q", server.prefix, tool, tools)
			}
		}
		token := t.Name() + " " + server.name
		ended := begin(ctx, c, server.prefix+"steps", token)
		for n := 1; n <= 3; n++ {
			if got, want := next(t, "progress", h.progress), fmt.Sprintf("%s %d/3", token, n); got != want {
				t.Errorf("progress %q, want %q", got, want)
			}
		}
		release(ctx, t, c, server.prefix, ended)

		if c.cancels() || server.name == "own" { // the go-sdk's server over HTTP does not let go of a call that is not cancelled
			giveUp(ctx, t, c, h, server.prefix+"hold", "hold "+token)
			if c.cancels() && server.name == "own" && !poll(patience, func() bool { return cancelled() > before }) {
				t.Fatal("the backend was not told of the cancellation")
			}
		}

		if c.canBeAsked() {
			if text, err := c.call(ctx, server.prefix+"ask", ""); err != nil || text != "accept Ada engine" {
				t.Errorf("%sask: %q, %v", server.prefix, text, err)
			}
			for _, want := range []string{"elicit [" + server.name + "] who?", "sample a word"} {
				if got := next(t, "question", h.asked); got != want {
					t.Errorf("asked %q, want %q", got, want)
				}
			}
		}

		for _, step := range []struct {
			level string
			want  []string
		}{{"info", []string{"info", "error"}}, {"error", []string{"error"}}} {
			if err := c.setLevel(ctx, step.level); (err != nil) != stateless {
				t.Errorf("setLevel: %v", err)
			}
			if text, err := c.call(ctx, server.prefix+"log", ""); err != nil || text != "ok" {
				t.Errorf("%slog: %q, %v", server.prefix, text, err)
			}
			if stateless {
				continue // its client, the go-sdk's, has no way to ask for logs
			}
			for _, level := range step.want {
				if got, want := next(t, "log", h.logs), server.name+"/l "+level+" "+level; got != want {
					t.Errorf("log %q, want %q", got, want)
				}
			}
		}
		prompt := server.prefix + "greet"
		if text, err := c.prompt(ctx, prompt, "Ada"); err != nil || text != "hello Ada" {
			t.Errorf("%s: %q, %v", prompt, text, err)
		}
		if values, err := c.complete(ctx, prompt, "A"); err != nil || !slices.Equal(values, []string{"Ada"}) {
			t.Errorf("complete %s: %q, %v", prompt, values, err)
		}
	}
	// Both have the resource; the first keeps it.
	if text, err := c.read(ctx, "asker://news"); err != nil || text != "no news" {
		t.Errorf("read: %q, %v", text, err)
	}
	if err := c.subscribe(ctx, "asker://news"); err != nil {
		t.Errorf("subscribe: %v", err)
	}
	if text, err := c.call(ctx, "touch", ""); err != nil || text != "ok" {
		t.Errorf("touch: %q, %v", text, err)
	}
	if got := next(t, "update", h.updates); got != "asker://news" {
		t.Errorf("updated %q", got)
	}
	if len(h.progress)+len(h.logs)+len(h.updates)+len(h.asked) > 0 {
		t.Errorf("more than there should be: %d of progress, %d logs, %d updates, %d questions", len(h.progress), len(h.logs), len(h.updates), len(h.asked))
	}

	// What a session of another client has grown already does not grow again, so each has a gateway's list to itself.
	for len(h.changed) > 0 {
		<-h.changed
	}
	if !slices.Contains(tools, "web__grown") && !slices.Contains(tools, "grown") {
		if text, err := c.call(ctx, "web__grow", ""); err != nil || text != "ok" {
			t.Errorf("web__grow: %q, %v", text, err)
		}
		next(t, "list_changed", h.changed)
		if got := mustList(ctx, t, c); !slices.Contains(got, "grown") {
			t.Errorf("after list_changed: %q", got)
		}
		if text, err := c.call(ctx, "grown", ""); err != nil || text != "grown" {
			t.Errorf("grown: %q, %v", text, err)
		}
	}
	if err := c.ping(ctx); (err != nil) != stateless {
		t.Errorf("ping: %v", err)
	}
	began := time.Now()
	if err := c.close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("close took %v", took)
	}
}
