package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/cobra"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// requireTool rejects a command line without a tool.
func requireTool(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return errors.New("call needs the name of a TOOL; gateway tools lists the tools")
	}
	return nil
}

func callCommand(c *cli) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "call TOOL [JSON | KEY=VALUE...]",
		Short: "Call a tool",
		Long: `call connects as a client without capabilities, calls a tool, and prints the
text of the result. A tool that needs elicitation, sampling or roots fails, or is not listed.

    gateway call search '{"q":"go"}'
    gateway call search q=go limit=3

A VALUE that is JSON is sent as JSON, unless the tool's schema declares a string. Any other
VALUE is sent as a string. The exit code is 1 if the call fails or the tool reports an error.`,
		Args: requireTool,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.checkTimeout(); err != nil {
				return err
			}
			a, err := c.open(runMode{noRestart: true}, c.quietLog, stdioOnly)
			if err != nil {
				return err
			}
			c.printSourceOnTerminal(a, asJSON)
			return a.run(cmd.Context(), func(ctx context.Context) error {
				return c.callTool(ctx, a, args[0], args[1:], asJSON)
			})
		},
	}
	c.timeoutFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the raw result")
	return cmd
}

// callTool connects to the gateway over a pipe in memory, calls a tool, and prints the result. It
// returns an error if the call fails, if the tool reports an error, or if a backend that the call
// waits for does not start within c.timeout.
func (c *cli) callTool(ctx context.Context, a *app, tool string, args []string, asJSON bool) error {
	clientEnd, gatewayEnd := transport.Pipe()
	served := make(chan error, 1)
	go func() { served <- a.gateway.Serve(ctx, "", "", gatewayEnd) }()
	p := peer.New(clientEnd, noCapabilities{}, peer.Options{})
	ended := make(chan error, 1)
	go func() { ended <- p.Run(context.Background()) }()
	defer func() {
		p.Close()
		<-ended
		<-served
	}()

	params := wire.Encode(map[string]any{
		"protocolVersion": protocol.NewestLegacy().Date,
		"capabilities":    struct{}{},
		"clientInfo":      mcp.Implementation{Name: "gateway call", Version: version},
	})
	if _, err := p.Call(ctx, protocol.MethodInitialize, params); err != nil {
		return err
	}
	if err := p.Notify(protocol.NotificationInitialized, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { c.awaitStart(ctx, cancel, a, tool) })
	defer watching.Wait()
	defer cancel(nil)
	arguments, err := c.toolArguments(ctx, a, tool, args)
	if err != nil {
		return err
	}
	response, err := c.callAndWait(ctx, a, p, tool, arguments)
	cancel(nil)
	timeout, isTimeout := errors.AsType[hintedError](context.Cause(ctx))
	switch {
	case isTimeout && err != nil:
		return timeout
	case err != nil:
		return err
	case response.Part(wire.PartError) != nil:
		return c.callError(a, tool, response, asJSON)
	}
	return c.printResult(a, response, asJSON)
}

// noCapabilities is the handler of a client without capabilities.
type noCapabilities struct{}

func (noCapabilities) HandleRequest(r *peer.Request) {
	r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
}
func (noCapabilities) HandleNotification(wire.Message, peer.Origin) {}

// callAndWait calls the tool and waits for the response. It prints progress to stderr. When ctx is
// done, it cancels the call and returns an error, unless the response has arrived before.
func (c *cli) callAndWait(
	ctx context.Context, a *app, p *peer.Peer, tool string, arguments []byte,
) (wire.Message, error) {
	params := append([]byte(`{"name":`), wire.Quote(tool)...)
	if arguments != nil {
		params = append(append(params, `,"arguments":`...), arguments...)
	}
	params = append(params, `,"_meta":{"progressToken":0}}`...)
	w := &callWaiter{w: c.err, maskedLine: a.maskedLine, done: make(chan struct{})}
	call := &peer.Call{Handler: w, Token: "0"}
	p.Send(wire.NewRequest("0", protocol.MethodToolsCall, params), call)
	select {
	case <-w.done:
	case <-ctx.Done():
		call.Cancel(nil)
		<-w.done
	}
	return w.response, w.err
}

// A callWaiter waits for the response of one call.
type callWaiter struct {
	w          io.Writer
	maskedLine func(string) string // returns a text on one line, without secrets
	response   wire.Message
	err        error
	done       chan struct{}
}

// OnProgress implements peer.ResponseHandler.
func (w *callWaiter) OnProgress(m wire.Message) {
	var p struct {
		Progress float64  `json:"progress"`
		Total    *float64 `json:"total"`
		Message  string   `json:"message"`
	}
	if json.Unmarshal(m.Part(wire.PartParams), &p) != nil {
		return
	}
	text := fmt.Sprint(p.Progress)
	if p.Total != nil {
		text += fmt.Sprintf(" of %v", *p.Total)
	}
	fmt.Fprintln(w.w, w.maskedLine(text+" "+p.Message))
}

// OnResponse implements peer.ResponseHandler.
func (w *callWaiter) OnResponse(m wire.Message, err error) {
	w.response, w.err = m, err
	close(w.done)
}

// callError converts a JSON-RPC error to an error. With asJSON it also prints the error object to
// stdout. If the tool is unknown, it prints the problems of failed backends to stderr, and the
// error says whether the configuration denies the tool. The error also says whether the backend of
// the tool is disabled.
func (c *cli) callError(a *app, tool string, response wire.Message, asJSON bool) error {
	e := wire.ReadError(response.Part(wire.PartError))
	if asJSON {
		fmt.Fprintf(c.out, "%s\n", response.Part(wire.PartError))
	}
	err := fmt.Errorf("%s (code %d)", a.maskedLine(e.Message), e.Code)
	if e.Code == wire.CodeInvalidParams && strings.HasPrefix(e.Message, "Unknown tool") {
		if denied := a.deniedError(tool, ""); denied != nil {
			return denied
		}
		_ = c.printFailedBackends(a, "") // one of the failed backends may have the tool
		return hintedError{err, a.nameHint(tool)}
	}
	if strings.Contains(e.Message, "it is disabled in the configuration") {
		if disabled := a.disabledError(a.hasBackendPrefix(tool)); disabled != nil {
			return disabled
		}
	}
	return err
}

// printResult prints a result. With asJSON it prints the unchanged result to stdout. Otherwise it
// prints the text of the result to stdout or, if the tool reports an error, to stderr with secrets
// masked; for a terminal it escapes control characters. It returns errReported if the tool reports
// an error.
func (c *cli) printResult(a *app, response wire.Message, asJSON bool) error {
	result := response.Part(wire.PartResult)
	failure := error(nil)
	if response.IsToolError() {
		failure = errReported
	}
	if asJSON {
		fmt.Fprintf(c.out, "%s\n", result)
		return failure
	}
	var r struct {
		Content []struct {
			Type, Text, MimeType, URI string
		} `json:"content"`
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		fmt.Fprintln(c.out, forWriter(c.out, string(result)))
		return failure
	}
	to, masked := c.out, func(text string) string { return text }
	if failure != nil {
		to, masked = c.err, a.mask.String
	}
	for _, block := range r.Content {
		if block.Type == "text" {
			fmt.Fprintln(to, forWriter(to, masked(block.Text)))
		} else {
			fields := strings.Fields(block.Type + " " + block.MimeType + " " + block.URI)
			fmt.Fprintf(to, "[%s]\n", forWriter(to, masked(strings.Join(fields, " "))))
		}
	}
	if len(r.Content) == 0 && r.StructuredContent != nil {
		fmt.Fprintln(to, forWriter(to, masked(string(r.StructuredContent))))
	}
	return failure
}

// toolArguments converts the arguments of a tool on the command line to JSON; nil = no arguments.
// Its error is a usageError.
func (c *cli) toolArguments(
	ctx context.Context, a *app, tool string, args []string,
) ([]byte, error) {
	wrong := func(format string, values ...any) error {
		return usageErrorOf("gateway call", fmt.Errorf(format, values...))
	}
	switch {
	case len(args) == 0:
		return nil, nil
	case len(args) == 1 && wire.IsObject([]byte(args[0])):
		if !json.Valid([]byte(args[0])) {
			return nil, wrong("the arguments are not valid JSON: %s", args[0])
		}
		return []byte(args[0]), nil
	}
	strings := schemaStrings(ctx, a, tool)
	seen := make(map[string]bool)
	var b bytes.Buffer
	b.WriteByte('{')
	for i, arg := range args {
		key, value, ok := splitKeyValue(arg)
		if !ok {
			return nil, wrong(
				"argument %q is not KEY=VALUE; a JSON object must be the only argument", arg)
		}
		if seen[key] {
			return nil, wrong("argument %q is given twice", key)
		}
		seen[key] = true
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(wire.Quote(key))
		b.WriteByte(':')
		if json.Valid([]byte(value)) && !strings[key] {
			b.WriteString(value)
		} else {
			b.Write(wire.Quote(value))
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func splitKeyValue(arg string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(arg, "=")
	return key, value, ok && key != ""
}

// schemaStrings returns the arguments of a tool: true = declared as a string in the schema. It
// waits until the tool is listed or all backends are settled. The result is empty if the tool is
// unknown or ctx is done.
func schemaStrings(ctx context.Context, a *app, tool string) map[string]bool {
	var found *catalog.Entry
	for found == nil {
		v := a.backends.View()
		if route, ok := v.Lookup(catalog.Tools, tool); ok {
			for _, e := range v.Entries(catalog.Tools) {
				if e.Backend == route.Backend && e.Item.Original == route.Original {
					found = &e
				}
			}
		}
		if v.Complete || found != nil {
			break
		}
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return nil
		}
	}
	all := make(map[string]bool)
	if found == nil {
		return all
	}
	var t struct {
		InputSchema struct {
			Properties map[string]struct {
				Type json.RawMessage `json:"type"`
			} `json:"properties"`
		} `json:"inputSchema"`
	}
	if json.Unmarshal(found.Item.Raw(), &t) == nil {
		for key, p := range t.InputSchema.Properties {
			all[key] = string(p.Type) == `"string"`
		}
	}
	return all
}
