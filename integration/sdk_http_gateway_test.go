//go:build unix

//lint:file-ignore SA1019 this tests sampling, roots and logging of the legacy revisions

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

// newFeatureServer returns the go-sdk's server with the tools of newGoSDKServer and all other
// features of a legacy session: the tool ask elicits a name and then samples a word; elicit only
// elicits; log logs; touch reports a change of the resource features://news; the prompt greet
// has an argument with completion.
func newFeatureServer() *gosdk.Server {
	nothing := func(context.Context, *gosdk.SubscribeRequest) error { return nil }
	server := newGoSDKServer(&gosdk.ServerOptions{
		SubscribeHandler:   nothing,
		UnsubscribeHandler: func(context.Context, *gosdk.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(
			_ context.Context, req *gosdk.CompleteRequest,
		) (*gosdk.CompleteResult, error) {
			values := []string{req.Params.Argument.Value + "da"}
			return &gosdk.CompleteResult{
				Completion: gosdk.CompletionResultDetails{Values: values},
			}, nil
		},
	})
	text := func(s string) *gosdkResult {
		return &gosdkResult{Content: []gosdk.Content{&gosdk.TextContent{Text: s}}}
	}
	add := func(name string, h gosdk.ToolHandler) {
		server.AddTool(&gosdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			h)
	}
	add("ask", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		who, err := req.Session.Elicit(ctx, &gosdk.ElicitParams{
			Message: "who?",
			RequestedSchema: json.RawMessage(
				`{"type":"object","properties":{"name":{"type":"string"}}}`),
		})
		if err != nil {
			return nil, err
		}
		word, err := req.Session.CreateMessage(ctx, &gosdk.CreateMessageParams{
			MaxTokens: 1,
			Messages: []*gosdk.SamplingMessage{{Role: "user",
				Content: &gosdk.TextContent{Text: "a word"}}},
		})
		if err != nil {
			return nil, err
		}
		return text(fmt.Sprint(who.Action, " ", who.Content["name"], " ",
			word.Content.(*gosdk.TextContent).Text)), nil
	})
	add("elicit", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		note("elicits")
		who, err := req.Session.Elicit(ctx, &gosdk.ElicitParams{Message: "well?"})
		if err != nil {
			return nil, err
		}
		return text(who.Action), nil
	})
	add("log", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		for _, level := range []gosdk.LoggingLevel{"info", "error"} {
			if err := req.Session.Log(ctx,
				&gosdk.LoggingMessageParams{Level: level, Logger: "l",
					Data: string(level)}); err != nil {
				return nil, err
			}
		}
		return text("ok"), nil
	})
	add("touch", func(ctx context.Context, req *gosdkRequest) (*gosdkResult, error) {
		return text("ok"),
			server.ResourceUpdated(ctx,
				&gosdk.ResourceUpdatedNotificationParams{URI: "features://news"})
	})
	server.AddResource(&gosdk.Resource{Name: "news", URI: "features://news"},
		func(context.Context, *gosdk.ReadResourceRequest) (*gosdk.ReadResourceResult, error) {
			return &gosdk.ReadResourceResult{Contents: []*gosdk.ResourceContents{{URI: "features://news", Text: "no news"}}}, nil
		})
	server.AddPrompt(&gosdk.Prompt{Name: "greet",
		Arguments: []*gosdk.PromptArgument{{Name: "name"}}},
		func(_ context.Context, req *gosdk.GetPromptRequest) (*gosdk.GetPromptResult, error) {
			return &gosdk.GetPromptResult{Messages: []*gosdk.PromptMessage{{
				Role:    "user",
				Content: &gosdk.TextContent{Text: "hello " + req.Params.Arguments["name"]},
			}}}, nil
		})
	return server
}

func runFeatureServer() int { return serveGoSDK(newFeatureServer()) }

// A sessionClient is an sdkClient with the other features of a legacy session.
type sessionClient interface {
	sdkClient
	setLevel(context.Context, string) error
	subscribe(context.Context, string) error
	read(context.Context, string) (string, error)
	prompt(ctx context.Context, name, argument string) (string, error)
	complete(ctx context.Context, prompt, value string) ([]string, error)
	answersRequests() bool
	sendsCancelled() bool
}

// sessionEvents are the requests and notifications that a sessionClient receives.
type sessionEvents struct {
	events
	logs     chan string // "logger level data"
	updates  chan string // URIs
	requests chan string // "elicit message", "sample text"
}

func newSessionEvents() sessionEvents {
	return sessionEvents{newEvents(), make(chan string, 100), make(chan string, 100),
		make(chan string, 100)}
}

// A sessionDialer connects to a gateway over HTTP, at the URL of /mcp or of /sse.
type sessionDialer func(ctx context.Context, url, revision string, h sessionEvents) (sessionClient,
	error)

type gosdkSession struct{ gosdkClient }

func goSDKDialer(httpSSE bool) sessionDialer {
	return func(ctx context.Context, url, revision string, h sessionEvents) (sessionClient, error) {
		client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"},
			&gosdk.ClientOptions{
				ProgressNotificationHandler: func(
					_ context.Context, req *gosdk.ProgressNotificationClientRequest,
				) {
					h.progress <- fmt.Sprintf("%v %v/%v", req.Params.ProgressToken,
						req.Params.Progress, req.Params.Total)
				},
				ToolListChangedHandler: func(context.Context, *gosdk.ToolListChangedRequest) {
					h.changed <- struct{}{}
				},
				LoggingMessageHandler: func(_ context.Context, req *gosdk.LoggingMessageRequest) {
					h.logs <- fmt.Sprintf("%s %s %s", req.Params.Logger, req.Params.Level,
						req.Params.Data)
				},
				ResourceUpdatedHandler: func(
					_ context.Context, req *gosdk.ResourceUpdatedNotificationRequest,
				) {
					h.updates <- req.Params.URI
				},
				ElicitationHandler: func(
					_ context.Context, req *gosdk.ElicitRequest,
				) (*gosdk.ElicitResult, error) {
					h.requests <- "elicit " + req.Params.Message
					return &gosdk.ElicitResult{Action: "accept",
						Content: map[string]any{"name": "Ada"}}, nil
				},
				CreateMessageHandler: func(
					_ context.Context, req *gosdk.CreateMessageRequest,
				) (*gosdk.CreateMessageResult, error) {
					h.requests <- "sample " +
						req.Params.Messages[0].Content.(*gosdk.TextContent).Text
					return &gosdk.CreateMessageResult{Model: "m", Role: "assistant",
						Content: &gosdk.TextContent{Text: "engine"}}, nil
				},
			})
		var transport gosdk.Transport = &gosdk.StreamableClientTransport{Endpoint: url,
			HTTPClient: separateConnections()}
		if httpSSE {
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

func (c gosdkSession) answersRequests() bool { return true }
func (c gosdkSession) sendsCancelled() bool  { return true }
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
	res, err := c.GetPrompt(ctx, &gosdk.GetPromptParams{Name: name,
		Arguments: map[string]string{"name": argument}})
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
	events          sessionEvents
	handlesRequests bool
}

func (c mcpgoSession) answersRequests() bool { return c.handlesRequests }

// over HTTP it disconnects without a cancellation
func (c mcpgoSession) sendsCancelled() bool { return false }

// Elicit and CreateMessage are mcp-go's handlers.
func (h sessionEvents) Elicit(
	_ context.Context, req mcpgo.ElicitationRequest,
) (*mcpgo.ElicitationResult, error) {
	h.requests <- "elicit " + req.Params.Message
	return &mcpgo.ElicitationResult{ElicitationResponse: mcpgo.ElicitationResponse{Action: "accept",
		Content: map[string]any{"name": "Ada"}}}, nil
}

func (h sessionEvents) CreateMessage(
	_ context.Context, req mcpgo.CreateMessageRequest,
) (*mcpgo.CreateMessageResult, error) {
	text, _ := mcpgo.AsTextContent(req.Messages[0].Content)
	if text == nil {
		return nil, fmt.Errorf("sampling without text: %v", req.Messages[0].Content)
	}
	h.requests <- "sample " + text.Text
	return &mcpgo.CreateMessageResult{Model: "m",
		SamplingMessage: mcpgo.SamplingMessage{Role: "assistant",
			Content: mcpgo.NewTextContent("engine")}}, nil
}

func mcpGoDialer(httpSSE bool) sessionDialer {
	return func(ctx context.Context, url, revision string, h sessionEvents) (sessionClient, error) {
		var transport mcpgotransport.Interface
		transport, err := mcpgotransport.NewStreamableHTTP(url,
			mcpgotransport.WithContinuousListening(),
			mcpgotransport.WithHTTPBasicClient(separateConnections()))
		if httpSSE {
			transport, err = mcpgotransport.NewSSE(url,
				mcpgotransport.WithHTTPClient(separateConnections()))
		}
		if err != nil {
			return nil, err
		}
		var opts []mcpgoclient.ClientOption
		if !httpSSE { // the HTTP+SSE client of mcp-go does not support requests of the server
			opts = append(opts, mcpgoclient.WithElicitationHandler(h),
				mcpgoclient.WithSamplingHandler(h))
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
		c := mcpgoSession{mcpgoClient{client}, h, !httpSSE}
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
	// In the modern generation Subscribe only records the URI to listen to.
	return c.listen(ctx, c.events.events)
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

// TestSDKClientsOverHTTP is TestSDKClientsInEveryRevision over HTTP, with all features of a
// legacy session: the clients of both SDKs, over streamable HTTP in each revision and in the
// negotiated one, and over HTTP+SSE; the go-sdk's server as a child per session and over HTTP.
func TestSDKClientsOverHTTP(t *testing.T) {
	t.Parallel()
	server := newFeatureServer()
	web := httptest.NewServer(gosdk.NewStreamableHTTPHandler(
		func(*http.Request) *gosdk.Server { return server }, nil))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	notes := notesFile(t)
	// The server sends requests, as in a legacy session. In the modern generation, which it also
	// speaks, its SDK does not allow that.
	local := helperBackend("local", "features", notes)
	local.Sharing, local.Generation = "session", "legacy"
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, local,
		backend{Name: "web", URL: web.URL, Generation: "legacy"})
	url := s.serveURL()
	awaitReady(t, url)
	httpSSE := strings.TrimSuffix(url, "/mcp") + "/sse"
	for _, c := range []struct {
		name      string
		dial      sessionDialer
		url       string
		revisions []string
		newest    string // the negotiated revision
	}{
		{"gosdk", goSDKDialer(false), url, revisions, modernRevision},
		// mcp-go keeps a standalone stream open, which 2026-07-28 does not have.
		{"mcpgo", mcpGoDialer(false), url, revisions, "2025-11-25"},
		{"gosdk-sse", goSDKDialer(true), httpSSE, []string{"2024-11-05"}, "2025-11-25"},
		{"mcpgo-sse", mcpGoDialer(true), httpSSE, []string{"2024-11-05"}, "2025-11-25"},
	} {
		for _, revision := range append(slices.Clone(c.revisions), "") {
			t.Run(c.name+"/"+revision, func(t *testing.T) {
				testSessionClient(t, c.dial, c.url, revision, cmp.Or(revision, c.newest), notes)
			})
		}
	}
}

// awaitReady waits until the gateway has listed its backends.
func awaitReady(t testing.TB, url string) {
	t.Helper()
	if !poll(waitTimeout, func() bool {
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

// cancelAfterProgress starts a call that does not complete, and cancels it after its first
// progress.
func cancelAfterProgress(
	ctx context.Context, t *testing.T, c sessionClient, h sessionEvents, tool, token string,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := startCall(ctx, c, tool, token)
	if got, want := next(t, "progress", h.progress), token+" 1/3"; got != want {
		t.Errorf("progress %q, want %q", got, want)
	}
	cancel()
	// mcp-go returns the error of its context, or an error of its reader, which noticed the end
	// of the context first.
	err := next(t, "end of the cancelled call", ended).err
	if !errors.Is(err, context.Canceled) &&
		(err == nil || !strings.HasSuffix(err.Error(), ": unexpected nil response")) {
		t.Errorf("cancelled call: %v", err)
	}
}

func testSessionClient(t *testing.T, dial sessionDialer, url, revision, want, notes string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	defer cancel()
	h := newSessionEvents()
	c, err := dial(ctx, url, revision, h)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	if c.revision() != want {
		t.Errorf("revision %s, want %s", c.revision(), want)
	}
	// The modern revision has neither logging/setLevel nor ping: both are errors at the gateway, as
	// directly at the server.
	modern := c.revision() == modernRevision
	cancelled := func() int {
		return len(slices.DeleteFunc(readNotes(notes),
			func(n string) bool { return n != "cancelled" }))
	}
	before := cancelled()
	tools := mustList(ctx, t, c)
	for _, server := range []struct{ name, prefix string }{{"local", ""}, {"web", "web__"}} {
		for _, tool := range []string{"ask", "echo", "grow", "hold", "log", "release", "steps",
			"touch"} {
			if !slices.Contains(tools, server.prefix+tool) {
				t.Errorf("no %s%s among %q", server.prefix, tool, tools)
			}
		}
		token := t.Name() + " " + server.name
		ended := startCall(ctx, c, server.prefix+"steps", token)
		for n := 1; n <= 3; n++ {
			if got, want := next(t, "progress", h.progress),
				fmt.Sprintf("%s %d/3", token, n); got != want {
				t.Errorf("progress %q, want %q", got, want)
			}
		}
		releaseSteps(ctx, t, c, server.prefix, ended)

		// Over HTTP the go-sdk's server keeps a call that is not cancelled.
		if c.sendsCancelled() || server.name == "local" {
			cancelAfterProgress(ctx, t, c, h, server.prefix+"hold", "hold "+token)
			if c.sendsCancelled() && server.name == "local" &&
				!poll(waitTimeout, func() bool { return cancelled() > before }) {
				t.Fatal("the backend did not receive the cancellation")
			}
		}

		if c.answersRequests() {
			if text, err := c.call(ctx, server.prefix+"ask", ""); err != nil ||
				text != "accept Ada engine" {
				t.Errorf("%sask: %q, %v", server.prefix, text, err)
			}
			for _, want := range []string{"elicit [" + server.name + "] who?", "sample a word"} {
				if got := next(t, "request of the server", h.requests); got != want {
					t.Errorf("request %q, want %q", got, want)
				}
			}
		}

		for _, step := range []struct {
			level string
			want  []string
		}{{"info", []string{"info", "error"}}, {"error", []string{"error"}}} {
			if err := c.setLevel(ctx, step.level); (err != nil) != modern {
				t.Errorf("setLevel: %v", err)
			}
			if text, err := c.call(ctx, server.prefix+"log", ""); err != nil || text != "ok" {
				t.Errorf("%slog: %q, %v", server.prefix, text, err)
			}
			if modern {
				continue // the go-sdk's client cannot request logs
			}
			for _, level := range step.want {
				if got, want := next(t, "log", h.logs),
					server.name+"/l "+level+" "+level; got != want {
					t.Errorf("log %q, want %q", got, want)
				}
			}
		}
		prompt := server.prefix + "greet"
		if text, err := c.prompt(ctx, prompt, "Ada"); err != nil || text != "hello Ada" {
			t.Errorf("%s: %q, %v", prompt, text, err)
		}
		if values, err := c.complete(ctx, prompt, "A"); err != nil ||
			!slices.Equal(values, []string{"Ada"}) {
			t.Errorf("complete %s: %q, %v", prompt, values, err)
		}
	}
	// Both backends have the resource; the first one keeps the URI.
	if text, err := c.read(ctx, "features://news"); err != nil || text != "no news" {
		t.Errorf("read: %q, %v", text, err)
	}
	if err := c.subscribe(ctx, "features://news"); err != nil {
		t.Errorf("subscribe: %v", err)
	}
	if text, err := c.call(ctx, "touch", ""); err != nil || text != "ok" {
		t.Errorf("touch: %q, %v", text, err)
	}
	if got := next(t, "update", h.updates); got != "features://news" {
		t.Errorf("updated %q", got)
	}
	if len(h.progress)+len(h.logs)+len(h.updates)+len(h.requests) > 0 {
		t.Errorf("unexpected messages: %d progress, %d logs, %d updates, %d requests",
			len(h.progress), len(h.logs), len(h.updates), len(h.requests))
	}

	// A tool that a session of another client has added is not added again; the list of each
	// gateway changes once.
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
	if err := c.ping(ctx); (err != nil) != modern {
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
