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

// patience is how long a call may take, whatever happens. Every wait in the gateway
// that could be part of it (queue, restart, call_timeout) is shorter.
const patience = 60 * time.Second

// A way is how a client's messages reach a gateway. What comes back is handed to
// client.hear.
type way interface {
	// open begins a session, or whatever stands for it.
	open(ctx context.Context) error
	// send sends a request and returns when its answer can be waited for: over when
	// nothing more comes on the way that was its own.
	send(ctx context.Context, m wire.Message, tool string) (over bool, err error)
	// tell sends a notification.
	tell(ctx context.Context, m wire.Message) error
	// close ends the session, politely or not.
	close(politely bool)
}

// A client makes calls and holds what comes back against them.
type client struct {
	w      *world
	name   string
	kind   string
	rude   bool
	steady bool // it stays for the whole of a run
	script *script
	way    way
	stamp  func(params string) string // marks of the stateless era; nil = none

	mu      sync.Mutex
	waiting map[wire.ID]*call
	over    map[wire.ID]*past // the latest that have ended, in case something comes for them
	order   []wire.ID
	nextID  int

	lists atomic.Int64 // list_changed
}

// A call is one on its way.
type call struct {
	deed
	id    wire.ID
	began time.Time
	done  chan struct{} // closed with the answer

	answer   wire.Message // guarded by client.mu
	answered bool
	forgiven bool // its client has cancelled it or gone: it may be answered, or not
	progress int
}

// A past is what is kept of a call that is over: no answer, for some are long.
type past struct{ answered, forgiven bool }

func newClient(w *world, index int, kind string, backends []*backend, rude bool) *client {
	name := "c" + strconv.Itoa(index)
	c := &client{w: w, name: name, kind: kind, rude: rude, script: newScript(w.seed, index, name, backends, rude),
		waiting: make(map[wire.ID]*call), over: make(map[wire.ID]*past)}
	switch kind {
	case "http":
		c.way = newHTTPWay(c, false)
	case "stateless":
		c.way = newHTTPWay(c, true)
	case "sse":
		c.way = newSSEWay(c)
	case "stdio":
		c.way = &stdioWay{c: c}
	}
	return c
}

func (c *client) breach(format string, args ...any) {
	c.w.tally.breach("client %s (%s), seed %d: %s", c.name, c.kind, c.w.seed, fmt.Sprintf(format, args...))
}

// enter makes a call of a deed.
func (c *client) enter(d deed) (*call, wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	id := wire.ID(strconv.Itoa(c.nextID))
	if c.nextID%2 == 1 {
		id = wire.ID(wire.Quote(c.name + "/" + strconv.Itoa(c.nextID)))
	}
	x := &call{deed: d, id: id, began: time.Now(), done: make(chan struct{}), forgiven: d.rude == "cancel" || d.rude == "vanish"}
	c.waiting[id] = x
	params := `{"name":"` + d.backend.name + "__" + d.tool + `","arguments":` + d.args
	meta := ""
	if d.token {
		meta = `"progressToken":` + string(id)
	}
	switch {
	case c.stamp != nil:
		params += `,"_meta":` + c.stamp(meta)
	case meta != "":
		params += `,"_meta":{` + meta + `}`
	}
	return x, wire.NewRequest(id, "tools/call", []byte(params+"}"))
}

// leave takes a call out.
func (c *client) leave(x *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, x.id)
	c.over[x.id] = &past{x.answered, x.forgiven}
	if c.order = append(c.order, x.id); len(c.order) > 2000 {
		delete(c.over, c.order[0])
		c.order = c.order[1:]
	}
}

// do carries out a deed, whole.
func (c *client) do(ctx context.Context, p *phase, d deed) {
	if d.fault != "" {
		c.w.tally.fault(d.fault)
	}
	if d.rude != "" && d.rude != "flood" {
		c.w.tally.fault("client: " + d.rude)
	}
	x, m := c.enter(d)
	defer c.leave(x)
	life, end := context.WithTimeout(ctx, patience)
	defer end()
	if x.forgiven {
		timer := time.AfterFunc(d.late, func() { c.abandon(life, x, end) })
		defer timer.Stop()
	}
	over, err := c.way.send(life, m, d.backend.name+"__"+d.tool)
	switch {
	case err != nil:
	case over:
		err = errors.New("what would have carried it has ended")
	default:
		select {
		case <-x.done:
		case <-life.Done():
			err = life.Err()
		}
	}
	c.judge(ctx, p, x, err)
}

// abandon is what a rude client does about a call of its own.
func (c *client) abandon(ctx context.Context, x *call, hangUp func()) {
	if x.rude == "cancel" && c.stamp == nil {
		_ = c.way.tell(ctx, wire.NewNotification("notifications/cancelled", []byte(`{"requestId":`+string(x.id)+`,"reason":"tired"}`)))
		// What comes now comes soon, or never.
		select {
		case <-x.done:
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	hangUp()
}

// judge says how a call has ended.
func (c *client) judge(ctx context.Context, p *phase, x *call, err error) {
	c.mu.Lock()
	answered, m := x.answered, x.answer
	c.mu.Unlock()
	took := time.Since(x.began)
	outcome := ""
	switch {
	case answered:
		outcome = c.weigh(x, m)
	case x.forgiven:
		outcome = "none, and none was waited for"
	case ctx.Err() != nil:
		outcome = "none: its client had gone"
		c.mu.Lock()
		x.forgiven = true
		c.mu.Unlock()
	case errors.Is(err, context.DeadlineExceeded):
		outcome = "LOST"
		c.breach("call %s to %s (%s) has no answer after %v: %s", x.id, x.backend.name, x.what(), patience, x.nonce)
	default:
		outcome = "LOST"
		c.breach("call %s to %s (%s) has no answer: %v, after %v: %s", x.id, x.backend.name, x.what(), err, took, x.nonce)
	}
	timed := c.steady && !c.rude && x.backend.role == healthy && x.tool == "echo" && c.kind != "stdio"
	c.w.tally.call(p, x.fault, outcome, took, timed)
}

func (x *call) what() string {
	if x.fault != "" {
		return x.fault
	}
	return x.tool
}

// weigh looks at an answer, and says of what kind it is.
func (c *client) weigh(x *call, m wire.Message) string {
	if e := m.Part(wire.PartError); e != nil {
		return c.weighError(x, e)
	}
	result := m.Part(wire.PartResult)
	if x.backend.role == demo {
		if text, _ := wire.Lookup(x.argsRaw(), "text"); !strings.Contains(string(result), `"text":`+string(wire.Quote(wire.Unquote(text)))) {
			c.breach("call %s to %s: the wrong answer: %.300s", x.id, x.backend.name, result)
			return "WRONG"
		}
		return "result"
	}
	got, _ := wire.Lookup(result, "structuredContent", "got")
	if string(got) != x.args {
		c.breach("call %s to %s (%s): the wrong bytes came back\n  sent %.600s\n  got  %.600s", x.id, x.backend.name, x.what(), x.args, result)
		return "WRONG"
	}
	stub, _ := wire.Lookup(result, "structuredContent", "stub")
	if wire.Unquote(stub) != x.backend.name {
		c.breach("call %s to %s (%s) was answered by %s", x.id, x.backend.name, x.what(), stub)
		return "WRONG"
	}
	pid, _ := wire.Lookup(result, "structuredContent", "pid")
	if n, _ := strconv.ParseInt(string(pid), 10, 64); n > 0 && c.kind != "stdio" {
		if x.backend.pid.Swap(n) != n {
			if at := x.backend.killed.Swap(0); at > 0 {
				c.w.tally.revived(time.Since(time.Unix(0, at)))
			}
		}
	}
	return "result"
}

func (x *call) argsRaw() []byte { return []byte(x.args) }

// weighError looks at an error: it is to be honest, and to have a cause.
func (c *client) weighError(x *call, e []byte) string {
	code, _ := wire.Lookup(e, "code")
	message, _ := wire.Lookup(e, "message")
	text := wire.Unquote(message)
	named := strings.HasPrefix(text, "backend "+x.backend.name+": ") ||
		strings.HasPrefix(x.fault, "ask ") && strings.Contains(text, "backend "+x.backend.name+" asks ")
	kind := ""
	switch {
	case x.fault == "error" && string(code) == strconv.Itoa(ownError):
		return "error: the backend's own"
	case x.rude == "flood" && strings.Contains(text, "requests"):
		return "error: too many at one time"
	case named && strings.Contains(text, "call_timeout"):
		kind = "error: call_timeout"
	case named && strings.Contains(text, "not running"), named && strings.Contains(text, "did not start"):
		kind = "error: not running"
	case named && strings.Contains(text, "outcome unknown"):
		kind = "error: lost, outcome unknown"
	case named:
		kind = "error: other, naming the backend"
	case x.backend.role == broken:
		return "error: of a broken backend"
	case x.backend.role == mortal && strings.HasPrefix(text, "Unknown tool"):
		return "error: not configured just now"
	default:
		c.breach("call %s to %s (%s): an error that does not name its backend: %s", x.id, x.backend.name, x.what(), e)
		return "DISHONEST"
	}
	if x.backend.spared() {
		c.breach("call %s to %s, which is healthy, has failed: %s", x.id, x.backend.name, e)
		return "FAILED"
	}
	return kind
}

// at returns the calls of a client that are at a backend.
func (c *client) at(b *backend) (some []*call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.waiting {
		if x.backend == b && !x.answered && !x.forgiven {
			some = append(some, x)
		}
	}
	return some
}

// list reads the list of tools, and looks whether those of healthy backends are there.
func (c *client) list(ctx context.Context, p *phase) {
	have := make(map[string]bool)
	for cursor := ""; ; {
		x, _ := c.enter(deed{tool: "list", args: "{}", backend: &backend{name: "the gateway"}})
		params := "{}"
		if cursor != "" {
			params = `{"cursor":` + cursor + `}`
		}
		if c.stamp != nil {
			params = strings.Replace(params, "{", `{"_meta":`+c.stamp(""), 1)
			params = strings.Replace(params, `}"cursor"`, `},"cursor"`, 1)
		}
		life, end := context.WithTimeout(ctx, patience)
		over, err := c.way.send(life, wire.NewRequest(x.id, "tools/list", []byte(params)), "")
		if err == nil && !over {
			select {
			case <-x.done:
			case <-life.Done():
			}
		}
		end()
		c.leave(x)
		c.mu.Lock()
		answered, m := x.answered, x.answer
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
	for _, b := range c.script.spared {
		if !have[b.name+"__echo"] {
			c.breach("tools/list: the tools of %s, which is healthy, are missing", b.name)
		}
	}
	c.w.tally.call(p, "", "lists read", 0, false)
}

// hear handles what came from the gateway, in any way.
func (c *client) hear(raw []byte) {
	m, err := wire.Parse(raw)
	if err != nil {
		c.breach("what is no message came: %v: %.300q", err, raw)
		return
	}
	switch m.Kind() {
	case wire.Response:
		c.answer(m)
	case wire.Notification:
		c.told(m)
	case wire.Request:
		if m.Method() == "ping" { // towards clients the gateway asks nothing else unasked
			_ = c.way.tell(context.Background(), wire.NewResult(m.ID(), []byte("{}")))
			return
		}
		c.breach("it was asked for what it has not declared: %.300s", raw)
	default:
		c.breach("a batch came: %.300s", raw)
	}
}

func (c *client) answer(m wire.Message) {
	c.mu.Lock()
	x := c.waiting[m.ID()]
	past := c.over[m.ID()]
	first := x != nil && !x.answered
	if first {
		x.answer, x.answered = m, true
		close(x.done)
	} else if past != nil && !past.answered && past.forgiven {
		past.answered, first = true, true
	}
	c.mu.Unlock()
	switch {
	case first:
	case x != nil || past != nil && past.answered:
		c.breach("call %s was answered twice: %.300s", m.ID(), m.Raw())
	case past != nil:
		c.breach("call %s was answered when it was over: %.300s", m.ID(), m.Raw())
	default:
		c.breach("an answer came to what it did not ask: %.300s", m.Raw())
	}
}

func (c *client) told(m wire.Message) {
	switch m.Method() {
	case "notifications/progress":
		c.mu.Lock()
		x := c.waiting[m.Token()]
		if x != nil {
			x.progress++
		}
		past := c.over[m.Token()]
		bad := x != nil && (!x.token || x.answered && !x.forgiven) || x == nil && past == nil
		c.mu.Unlock()
		if bad {
			c.breach("progress of another's, or too late: %.300s", m.Raw())
		}
	case "notifications/message":
		data, _ := wire.Lookup(m.Part(wire.PartParams), "data")
		visitors := !c.steady && c.stamp != nil // are one guest, and hear of each other's calls
		if text := wire.Unquote(data); strings.HasPrefix(text, "c") && !strings.HasPrefix(text, c.name+"-") && !visitors {
			c.breach("a log message of another's call: %.300s", m.Raw())
		}
	case "notifications/tools/list_changed":
		c.lists.Add(1)
	}
}
