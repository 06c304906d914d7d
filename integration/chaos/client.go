//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/wire"
)

// callTimeout is the maximum time of a call. Every wait in the gateway that can be part of a call
// (queue, restart, call_timeout) is shorter.
const callTimeout = 60 * time.Second

// A clientTransport sends the messages of a client to a gateway. It passes received messages to
// client.receive.
type clientTransport interface {
	// open begins a session, if the transport has sessions.
	open(ctx context.Context) error
	// send sends a request. It returns when the caller can wait for the response. over is true if
	// no further message will arrive for the request.
	send(ctx context.Context, m wire.Message, tool string) (over bool, err error)
	// write sends a notification, or a request without waiting for its response.
	write(ctx context.Context, m wire.Message) error
	// close ends the session, with a DELETE only if politely is true.
	close(politely bool)
}

// A client makes calls and checks the received messages.
type client struct {
	harness    *harness
	name       string
	kind       string
	misbehaves bool
	permanent  bool // stays connected for the whole run
	script     *script
	transport  clientTransport
	// requestMeta returns the _meta of a modern request; nil = legacy client
	requestMeta func(params string) string

	mu      sync.Mutex
	pending map[wire.ID]*call
	ended   map[wire.ID]*endedCall // recently ended calls, to check late messages
	order   []wire.ID
	nextID  int

	listChanges atomic.Int64 // number of list_changed notifications
}

// A call is a call in flight.
type call struct {
	scriptedCall
	id    wire.ID
	began time.Time
	done  chan struct{} // closed when the response arrives

	response  wire.Message // guarded by client.mu
	answered  bool
	abandoned bool // the client has cancelled or disconnected: a response may or may not arrive
	progress  int
}

// An endedCall is the record of a call that has ended. It does not contain the response, which may
// be large.
type endedCall struct{ answered, abandoned bool }

func newClient(w *harness, index int, kind string, backends []*backend, rude bool) *client {
	name := "c" + strconv.Itoa(index)
	c := &client{harness: w, name: name, kind: kind, misbehaves: rude,
		script:  newScript(w.seed, index, name, backends, rude),
		pending: make(map[wire.ID]*call), ended: make(map[wire.ID]*endedCall)}
	switch kind {
	case "http":
		c.transport = newHTTPTransport(c, false)
	case "stateless":
		c.transport = newHTTPTransport(c, true)
	case "sse":
		c.transport = newHTTPSSETransport(c)
	case "stdio":
		c.transport = &stdioTransport{c: c}
	}
	return c
}

func (c *client) breach(format string, args ...any) {
	c.harness.stats.breach("client %s (%s), seed %d: %s", c.name, c.kind, c.harness.seed,
		fmt.Sprintf(format, args...))
}

// newCall registers a call and returns its message.
func (c *client) newCall(d scriptedCall) (*call, wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	id := wire.ID(strconv.Itoa(c.nextID))
	if c.nextID%2 == 1 {
		id = wire.ID(wire.Quote(c.name + "/" + strconv.Itoa(c.nextID)))
	}
	x := &call{scriptedCall: d, id: id, began: time.Now(), done: make(chan struct{}),
		abandoned: d.clientFault == "cancel" || d.clientFault == "vanish"}
	c.pending[id] = x
	params := `{"name":"` + d.backend.name + "__" + d.tool + `","arguments":` + d.args
	meta := ""
	if d.token {
		meta = `"progressToken":` + string(id)
	}
	switch {
	case c.requestMeta != nil:
		params += `,"_meta":` + c.requestMeta(meta)
	case meta != "":
		params += `,"_meta":{` + meta + `}`
	}
	return x, wire.NewRequest(id, "tools/call", []byte(params+"}"))
}

// endCall removes a call from pending.
func (c *client) endCall(x *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, x.id)
	c.ended[x.id] = &endedCall{x.answered, x.abandoned}
	if c.order = append(c.order, x.id); len(c.order) > 2000 {
		delete(c.ended, c.order[0])
		c.order = c.order[1:]
	}
}

// perform makes a call and waits for its end.
func (c *client) perform(ctx context.Context, p *phase, d scriptedCall) {
	if d.fault != "" {
		c.harness.stats.countFault(d.fault)
	}
	if d.clientFault != "" && d.clientFault != "flood" {
		c.harness.stats.countFault("client: " + d.clientFault)
	}
	x, m := c.newCall(d)
	defer c.endCall(x)
	life, end := context.WithTimeout(ctx, callTimeout)
	defer end()
	if x.abandoned {
		timer := time.AfterFunc(d.clientFaultDelay, func() { c.abandon(life, x, end) })
		defer timer.Stop()
	}
	over, err := c.transport.send(life, m, d.backend.name+"__"+d.tool)
	switch {
	case err != nil:
	case over:
		err = errors.New("the connection ended without a response")
	default:
		select {
		case <-x.done:
		case <-life.Done():
			err = life.Err()
		}
	}
	c.recordOutcome(ctx, p, x, err)
}

// abandon cancels the call and disconnects, or only disconnects.
func (c *client) abandon(ctx context.Context, x *call, disconnect func()) {
	if x.clientFault == "cancel" && c.requestMeta == nil {
		_ = c.transport.write(ctx, wire.NewNotification("notifications/cancelled",
			[]byte(`{"requestId":`+string(x.id)+`,"reason":"tired"}`)))
		// A response, if there is one, arrives soon.
		select {
		case <-x.done:
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	disconnect()
}

// recordOutcome counts the outcome of a call.
func (c *client) recordOutcome(ctx context.Context, p *phase, x *call, err error) {
	c.mu.Lock()
	answered, m := x.answered, x.response
	c.mu.Unlock()
	took := time.Since(x.began)
	outcome := ""
	switch {
	case answered:
		outcome = c.checkResult(x, m)
	case x.abandoned:
		outcome = "none; abandoned"
	case ctx.Err() != nil:
		outcome = "none; the client disconnected"
		c.mu.Lock()
		x.abandoned = true
		c.mu.Unlock()
	case errors.Is(err, context.DeadlineExceeded):
		outcome = "LOST"
		c.breach("call %s to %s (%s) has no response after %v: %s", x.id, x.backend.name,
			x.description(), callTimeout, x.nonce)
	default:
		outcome = "LOST"
		c.breach("call %s to %s (%s) has no response: %v, after %v: %s", x.id, x.backend.name,
			x.description(), err, took, x.nonce)
	}
	timed := c.permanent && !c.misbehaves && x.backend.role == healthy && x.tool == "echo" &&
		c.kind != "stdio"
	c.harness.stats.countCall(p, x.fault, outcome, took, timed)
}

func (x *call) description() string {
	if x.fault != "" {
		return x.fault
	}
	return x.tool
}

// checkResult checks a response and returns its outcome.
func (c *client) checkResult(x *call, m wire.Message) string {
	if e := m.Part(wire.PartError); e != nil {
		return c.checkError(x, e)
	}
	result := m.Part(wire.PartResult)
	if x.backend.role == demo {
		if text, _ := wire.Lookup(x.argsRaw(), "text"); !strings.Contains(string(result),
			`"text":`+string(wire.Quote(wire.Unquote(text)))) {
			c.breach("call %s to %s: wrong response: %.300s", x.id, x.backend.name, result)
			return "WRONG"
		}
		return "result"
	}
	got, _ := wire.Lookup(result, "structuredContent", "got")
	if string(got) != x.args {
		c.breach("call %s to %s (%s): wrong bytes in the response\n  sent %.600s\n  got  %.600s",
			x.id, x.backend.name, x.description(), x.args, result)
		return "WRONG"
	}
	stub, _ := wire.Lookup(result, "structuredContent", "stub")
	if wire.Unquote(stub) != x.backend.name {
		c.breach("call %s to %s (%s) has a response of %s", x.id, x.backend.name, x.description(),
			stub)
		return "WRONG"
	}
	pid, _ := wire.Lookup(result, "structuredContent", "pid")
	if n, _ := strconv.ParseInt(string(pid), 10, 64); n > 0 && c.kind != "stdio" {
		if x.backend.pid.Swap(n) != n {
			if at := x.backend.killedAt.Swap(0); at > 0 {
				c.harness.stats.addTimeToRecovery(time.Since(time.Unix(0, at)))
			}
		}
	}
	return "result"
}

func (x *call) argsRaw() []byte { return []byte(x.args) }

// checkError checks that the text of an error contains its backend and its cause, and returns the
// outcome.
func (c *client) checkError(x *call, e []byte) string {
	code, _ := wire.Lookup(e, "code")
	message, _ := wire.Lookup(e, "message")
	text := wire.Unquote(message)
	named := strings.HasPrefix(text, "backend "+x.backend.name+": ") ||
		strings.HasPrefix(x.fault, "ask ") &&
			strings.Contains(text, "backend "+x.backend.name+" requests ")
	kind := ""
	switch {
	case x.fault == "error" && string(code) == strconv.Itoa(requestedError):
		return "error: requested"
	case x.clientFault == "flood" && strings.Contains(text, "requests"):
		return "error: too many in flight"
	case named && strings.Contains(text, "call_timeout"):
		kind = "error: call_timeout"
	case named && strings.Contains(text, "not running"), named &&
		strings.Contains(text, "did not start"):
		kind = "error: not running"
	case named && strings.Contains(text, "outcome unknown"):
		kind = "error: lost, outcome unknown"
	case named:
		kind = "error: other, names the backend"
	case x.backend.role == broken:
		return "error: of a broken backend"
	case x.backend.role == crashing && strings.HasPrefix(text, "Unknown tool"):
		return "error: not configured at the moment"
	default:
		c.breach("call %s to %s (%s): error does not name the backend: %s", x.id, x.backend.name,
			x.description(), e)
		return "UNEXPLAINED"
	}
	if x.backend.isExempt() {
		c.breach("call %s to the healthy backend %s failed: %s", x.id, x.backend.name, e)
		return "FAILED"
	}
	return kind
}

// callsAt returns the calls of the client that are in flight at a backend.
func (c *client) callsAt(b *backend) (some []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.pending {
		if x.backend == b && !x.answered && !x.abandoned {
			some = append(some, x)
		}
	}
	return some
}

// list reads the list of tools and checks that the list contains the tools of exempt backends.
func (c *client) list(ctx context.Context, p *phase) {
	have := make(map[string]bool)
	for cursor := ""; ; {
		x, _ := c.newCall(scriptedCall{tool: "list", args: "{}",
			backend: &backend{name: "the gateway"}})
		params := "{}"
		if cursor != "" {
			params = `{"cursor":` + cursor + `}`
		}
		if c.requestMeta != nil {
			params = strings.Replace(params, "{", `{"_meta":`+c.requestMeta(""), 1)
			params = strings.Replace(params, `}"cursor"`, `},"cursor"`, 1)
		}
		life, end := context.WithTimeout(ctx, callTimeout)
		over, err := c.transport.send(life, wire.NewRequest(x.id, "tools/list", []byte(params)), "")
		if err == nil && !over {
			select {
			case <-x.done:
			case <-life.Done():
			}
		}
		end()
		c.endCall(x)
		c.mu.Lock()
		answered, m := x.answered, x.response
		c.mu.Unlock()
		result := m.Part(wire.PartResult)
		if ctx.Err() != nil {
			return
		}
		if !answered || result == nil {
			c.breach("tools/list: %v: %.300s", err, m.Raw())
			return
		}
		tools, _ := wire.Lookup(result, "tools")
		wire.EachElement(tools, func(tool []byte) bool {
			name, _ := wire.Lookup(tool, "name")
			have[wire.Unquote(name)] = true
			return true
		})
		next, _ := wire.Lookup(result, "nextCursor")
		if cursor = string(next); cursor == "" {
			break
		}
	}
	for _, b := range c.script.exempt {
		if !have[b.name+"__echo"] {
			c.breach("tools/list: the tools of the healthy backend %s are missing", b.name)
		}
	}
	c.harness.stats.countCall(p, "", "lists read", 0, false)
}

// receive handles a message from the gateway.
func (c *client) receive(raw []byte) {
	m, err := wire.Parse(raw)
	if err != nil {
		c.breach("received an invalid message: %v: %.300q", err, raw)
		return
	}
	switch m.Kind() {
	case wire.Response:
		c.handleResponse(m)
	case wire.Notification:
		c.handleNotification(m)
	case wire.Request:
		if m.Method() == "ping" { // the only request that the gateway sends to these clients
			_ = c.transport.write(context.Background(), wire.NewResult(m.ID(), []byte("{}")))
			return
		}
		c.breach("received a request without the capability: %.300s", raw)
	default:
		c.breach("received a batch: %.300s", raw)
	}
}

func (c *client) handleResponse(m wire.Message) {
	c.mu.Lock()
	x := c.pending[m.ID()]
	past := c.ended[m.ID()]
	first := x != nil && !x.answered
	if first {
		x.response, x.answered = m, true
		close(x.done)
	} else if past != nil && !past.answered && past.abandoned {
		past.answered, first = true, true
	}
	c.mu.Unlock()
	switch {
	case first:
	case x != nil || past != nil && past.answered:
		c.breach("call %s has two responses: %.300s", m.ID(), m.Raw())
	case past != nil:
		c.breach("call %s has a response after its end: %.300s", m.ID(), m.Raw())
	default:
		c.breach("received a response to an unknown request: %.300s", m.Raw())
	}
}

func (c *client) handleNotification(m wire.Message) {
	switch m.Method() {
	case "notifications/progress":
		c.mu.Lock()
		x := c.pending[m.Token()]
		if x != nil {
			x.progress++
		}
		past := c.ended[m.Token()]
		bad := x != nil && (!x.token || x.answered && !x.abandoned) || x == nil && past == nil
		c.mu.Unlock()
		if bad {
			c.breach("received progress of another call, or too late: %.300s", m.Raw())
		}
	case "notifications/message":
		data, _ := wire.Lookup(m.Part(wire.PartParams), "data")
		// short modern clients share one identity, and receive log messages of each other's calls
		shareIdentity := !c.permanent && c.requestMeta != nil
		if text := wire.Unquote(data); strings.HasPrefix(text, "c") &&
			!strings.HasPrefix(text, c.name+"-") && !shareIdentity {
			c.breach("received a log message of another client's call: %.300s", m.Raw())
		}
	case "notifications/tools/list_changed":
		c.listChanges.Add(1)
	}
}
