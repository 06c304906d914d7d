package backends

import (
	"context"
	"fmt"
	"slices"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// loginToolName is the name of the login tool. The gateway lists this tool for a backend that needs
// a login and whose tools were never read, because a client cannot call any other tool of the
// backend, and so would never be asked to log in. The tool does nothing but that. It is exposed as
// backend__login (catalog.NewBuiltin), is in no cache and no lock file, and is not counted.
const loginToolName = "login"

// newLoginTool returns the login tool of a backend.
func newLoginTool(backend string) catalog.Item {
	return catalog.NewBuiltin(catalog.Tools, wire.Encode(struct {
		Name        string         `json:"name"`
		Title       string         `json:"title"`
		Description string         `json:"description"`
		InputSchema map[string]any `json:"inputSchema"`
	}{loginToolName, "Log in to " + backend,
		"Log in to the server " + backend + ". Its tools are listed after the login.",
		map[string]any{"type": "object", "additionalProperties": false}}))
}

// offerTool lets the login tool be listed, if there are pages for logins. The caller publishes.
func (l *backendLogin) offerTool() { l.offersTool.Store(l.b.set.LoginPage != nil) }

// withTool returns a listing of the backend with the login tool, if the backend needs a login and
// its tools were never read. The tool stays listed until they are. l may be nil.
func (l *backendLogin) withTool(to catalog.Listing) catalog.Listing {
	if l == nil || !l.offersTool.Load() || !to.Unknown[catalog.Tools] ||
		!permitLoginTool([]profileRule{{filters: *l.b.filters.inForce.Load()}}) {
		return to
	}
	to.Items[catalog.Tools] = []catalog.Item{l.tool}
	return to
}

// permitLoginTool reports whether no rule denies the login tool by its name. Lists of allowed tools
// and read_only do not count: they select tools of the server, and the login tool gives access to
// none of them.
func permitLoginTool(rules []profileRule) bool {
	return !slices.ContainsFunc(rules, func(p profileRule) bool {
		return !config.Filter{Deny: p.filters.Tools.Deny}.Permits(loginToolName)
	})
}

// permitsTool returns nil if an audience may call the login tool; nil = clients without profiles.
// Otherwise it returns [contract.ErrForbidden]. The tool need not be listed any more. l may be nil.
func (l *backendLogin) permitsTool(a *audience) error {
	if l == nil || a != nil && !a.uses(l.b) {
		return contract.ErrForbidden
	}
	rules := []profileRule{{filters: *l.b.filters.inForce.Load()}}
	if a != nil {
		rules = append(rules, a.rulesFor(l.b)...)
	}
	if !permitLoginTool(rules) {
		return contract.ErrForbidden
	}
	return nil
}

// A loginCall is a call of the login tool. While the backend needs a login, it ends like every call
// to the backend: with the question whether the user logs in. After the login it ends with a text,
// even if the backend itself has a tool of the same name by now, because the client has called the
// tool of the gateway.
type loginCall struct {
	*queuedCall
	ctx  context.Context // done when the call is cancelled
	stop context.CancelFunc
}

func newLoginCall(s *Set, backend string, r contract.BackendRequest,
	h contract.CallHandler) *loginCall {
	c := &loginCall{queuedCall: newCall(s, backend, r, h)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Send implements contract.BackendCall.
func (c *loginCall) Send() {
	m := c.request.Message
	b, err := c.set.backendOf(c.name, c.request.Session)
	if err != nil {
		c.fail(err)
		return
	}
	c.b = b
	if err := b.permits(&c.request); err != nil {
		c.fail(err)
	} else if task, _ := wire.Lookup(m.Part(wire.PartParams), "task"); !wire.IsNull(task) {
		c.refuse(wire.Errorf(wire.CodeMethodNotFound,
			"Method not found: the tool %s cannot run as a task", m.Name()))
	} else if why := b.login.needed(); why != nil {
		c.fail(why)
	} else if !b.lifetime.goWorker(c.awaitTools) {
		c.fail(notSent("it was stopped"))
	}
}

// Cancel implements contract.BackendCall.
func (c *loginCall) Cancel(params []byte) {
	c.queuedCall.Cancel(params)
	c.stop()
}

// loginToolWait bounds the time for which a call of the login tool waits, after the login, for the
// list of tools.
const loginToolWait = 5 * time.Second

// awaitTools waits until the tools of the backend are listed for the client, or its context is
// done, and ends the call.
func (c *loginCall) awaitTools(serving context.Context) {
	defer c.stop()
	defer context.AfterFunc(serving, c.stop)()
	ctx, cancel := context.WithTimeout(c.ctx, loginToolWait)
	defer cancel()
	who, login := c.set.sessions.principal(c.request.Session), c.b.login
	v := c.set.ViewFor(who)
	for v.IsUnknown(catalog.Tools, c.name) && login.needed() == nil && ctx.Err() == nil {
		select {
		case <-v.Changed:
			v = c.set.ViewFor(who)
		case <-ctx.Done():
		}
	}
	switch why := login.needed(); {
	case c.IsCancelled():
		c.fail(peer.ErrCancelled)
	case why != nil:
		c.fail(why)
	default:
		c.complete(loginResult(c.name, v), nil)
	}
}

// loginResult returns the result of the login tool, with the number of tools in a view.
func loginResult(backend string, v *catalog.View) wire.Message {
	text := "Logged in to " + backend + ". Its tools will be listed when it has answered."
	if !v.IsUnknown(catalog.Tools, backend) {
		n := 0
		for _, e := range v.Entries(catalog.Tools) {
			if e.Backend == backend && e.Exposed != "" {
				n++
			}
		}
		text = fmt.Sprintf("Logged in to %s. Number of its tools: %d.", backend, n)
	}
	return wire.NewResult("0", wire.Encode(map[string]any{
		"content": []any{map[string]string{"type": "text", "text": text}}}))
}
