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
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/logging"
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
	var timeout startTimeout
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
			o, err := openOneShot(cmd.Context(), c, timeout, false)
			if err != nil {
				return err
			}
			if showSource(c.stdio, asJSON) {
				printSource(o.err, o.Source)
			}
			t := toolCall{oneShot: o, tool: args[0], asJSON: asJSON}
			return o.run(cmd.Context(), func(ctx context.Context) error {
				return t.do(ctx, args[1:])
			})
		},
	}
	cmd.ValidArgsFunction = completeCall(&c.source)
	timeout.addFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the raw result")
	c.source.addProfileFlag(cmd)
	return cmd
}

// A toolCall is the call of a tool by the command call.
type toolCall struct {
	*oneShot
	tool   string
	asJSON bool // print the raw result
}

// do connects to the gateway over a pipe in memory, calls the tool with the arguments of a command
// line, and prints the result. It returns an error if the call fails, if the tool reports an error,
// or if a backend that the call waits for does not start within the timeout.
func (t *toolCall) do(ctx context.Context, args []string) error {
	clientEnd, gatewayEnd := transport.Pipe()
	served := make(chan error, 1)
	go func() { served <- t.gateway.Serve(ctx, "", t.client, gatewayEnd) }()
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
	watching.Go(func() { t.awaitStart(ctx, cancel) })
	defer watching.Wait()
	defer cancel(nil)
	arguments, err := t.arguments(ctx, args)
	if err != nil {
		return err
	}
	response, err := t.callAndWait(ctx, p, arguments)
	cancel(nil)
	timeout, isTimeout := errors.AsType[hintedError](context.Cause(ctx))
	switch {
	case isTimeout && err != nil:
		return timeout
	case err != nil:
		return err
	case response.Part(wire.PartError) != nil:
		return t.callError(response)
	}
	return t.printResult(response)
}

// noCapabilities is the handler of a client without capabilities.
type noCapabilities struct{}

func (noCapabilities) HandleRequest(r *peer.Request) {
	r.Fail(wire.Errorf(wire.CodeMethodNotFound, "Method not found: %s", r.Method()))
}
func (noCapabilities) HandleNotification(wire.Message, peer.Origin) {}

// callAndWait calls the tool and waits for the response. It prints progress to stderr. When ctx is
// done, it cancels the call and returns an error, unless the response has arrived before.
func (t *toolCall) callAndWait(
	ctx context.Context, p *peer.Peer, arguments []byte,
) (wire.Message, error) {
	params := append([]byte(`{"name":`), wire.Quote(t.tool)...)
	if arguments != nil {
		params = append(append(params, `,"arguments":`...), arguments...)
	}
	params = append(params, `,"_meta":{"progressToken":0}}`...)
	request, err := wire.ParseRequest("0", protocol.MethodToolsCall, params)
	if err != nil {
		return wire.Message{}, fmt.Errorf("the arguments cannot be sent: %w", err)
	}
	w := &callWaiter{w: t.err, mask: t.mask, done: make(chan struct{})}
	call := &peer.Call{Handler: w, Token: "0"}
	p.Send(request, call)
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
	w        io.Writer
	mask     *logging.Mask
	response wire.Message
	err      error
	done     chan struct{}
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
	fmt.Fprintln(w.w, maskedLine(w.mask, text+" "+p.Message))
}

// OnResponse implements peer.ResponseHandler.
func (w *callWaiter) OnResponse(m wire.Message, err error) {
	w.response, w.err = m, err
	close(w.done)
}

// startingBackends returns the names of the starting backends that the call waits for: the backend
// of the tool or, if the tool is unknown, all backends that may still list it.
func (t *toolCall) startingBackends() (names []string) {
	v := t.view()
	route, found := v.Lookup(catalog.Tools, t.tool)
	for _, s := range enabled(t.backends.Status()) {
		isOwn := found && s.Name == route.Backend
		if isOwn && s.State == backends.Starting || !found && !s.Settled {
			names = append(names, s.Name)
		}
	}
	return names
}

// awaitStart shows the backends that the call waits for. It cancels the call if one of these
// backends is still starting after the timeout. It returns when none of these backends is starting,
// or ctx is done.
func (t *toolCall) awaitStart(ctx context.Context, cancel context.CancelCauseFunc) {
	p := progress{w: t.err, terminal: isTerminal(t.err), began: time.Now()}
	defer p.clear()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	timeout := t.timeout.channel()
	for {
		timedOut := false
		select {
		case <-tick.C:
		case <-timeout:
			timedOut = true
		case <-ctx.Done():
			return
		}
		names := strings.Join(t.startingBackends(), ", ")
		switch {
		case names == "":
			return
		case timedOut:
			cancel(hintedError{
				fmt.Errorf("%s did not answer within %v", names, time.Duration(t.timeout)),
				"increase --timeout; gateway check shows more",
			})
			return
		case p.due():
			p.print(fmt.Sprintf("waiting for %s (%.0f s)",
				truncate(names, 60), time.Since(p.began).Seconds()))
		}
	}
}

// callError converts a JSON-RPC error to an error. With asJSON it also prints the error object to
// stdout. If the tool is unknown, it prints the problems of failed backends to stderr, and the
// error says whether the configuration denies the tool. The error also says whether the backend of
// the tool is disabled.
func (t *toolCall) callError(response wire.Message) error {
	e := wire.ReadError(response.Part(wire.PartError))
	if t.asJSON {
		fmt.Fprintf(t.out, "%s\n", response.Part(wire.PartError))
	}
	err := fmt.Errorf("%s (code %d)", maskedLine(t.mask, e.Message), e.Code)
	if e.Code == wire.CodeInvalidParams && strings.HasPrefix(e.Message, "Unknown tool") {
		if denied := deniedError(t.app, t.tool, ""); denied != nil {
			return denied
		}
		_ = t.printFailedBackends("") // one of the failed backends may have the tool
		return hintedError{err, nameHint(t.app, t.tool)}
	}
	if strings.Contains(e.Message, "it is disabled in the configuration") {
		if disabled := disabledError(t.app, hasBackendPrefix(t.app, t.tool)); disabled != nil {
			return disabled
		}
	}
	return err
}

// printResult prints a result. With asJSON it prints the unchanged result to stdout. Otherwise it
// prints the text of the result to stdout or, if the tool reports an error, to stderr with secrets
// masked; for a terminal it escapes control characters. It returns errReported if the tool reports
// an error.
func (t *toolCall) printResult(response wire.Message) error {
	result := response.Part(wire.PartResult)
	failure := error(nil)
	if response.IsToolError() {
		failure = errReported
	}
	if t.asJSON {
		fmt.Fprintf(t.out, "%s\n", result)
		return failure
	}
	var r struct {
		Content []struct {
			Type, Text, MimeType, URI string
		} `json:"content"`
		StructuredContent json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		fmt.Fprintln(t.out, forWriter(t.out, string(result)))
		return failure
	}
	to, masked := t.out, func(text string) string { return text }
	if failure != nil {
		to, masked = t.err, t.mask.String
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

// arguments converts the arguments on the command line to JSON; nil = no arguments. Its error is a
// usageError.
func (t *toolCall) arguments(ctx context.Context, args []string) ([]byte, error) {
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
	strings := t.schemaStrings(ctx)
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

// schemaStrings returns the arguments of the tool: true = declared as a string in the schema. It
// waits until the tool is listed or all backends are settled. The result is empty if the tool is
// unknown or ctx is done.
func (t *toolCall) schemaStrings(ctx context.Context) map[string]bool {
	var found *catalog.Entry
	for found == nil {
		v := t.view()
		if route, ok := v.Lookup(catalog.Tools, t.tool); ok {
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
	var listed struct {
		InputSchema struct {
			Properties map[string]struct {
				Type json.RawMessage `json:"type"`
			} `json:"properties"`
		} `json:"inputSchema"`
	}
	if json.Unmarshal(found.Item.Raw(), &listed) == nil {
		for key, p := range listed.InputSchema.Properties {
			all[key] = string(p.Type) == `"string"`
		}
	}
	return all
}
