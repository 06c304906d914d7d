package backends_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// pinned returns legacy backends with a value of tools.pin.
func pinned(pin config.Pin, names ...string) []config.Backend {
	all := legacyBackends(names...)
	for i := range all {
		all[i].Tools.Pin = pin
	}
	return all
}

// describedTool returns a tool with a description.
func describedTool(name, description string) string {
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name,
		description)
}

// describedTools returns a list of tools whose descriptions are in the arguments NAME=DESCRIPTION.
func describedTools(tools ...string) string {
	var all []string
	for _, tool := range tools {
		name, description, _ := strings.Cut(tool, "=")
		all = append(all, describedTool(name, description))
	}
	return `{"tools":[` + strings.Join(all, ",") + `]}`
}

// lockWith returns a lock file in which tools of the backend a, NAME=DESCRIPTION, are approved.
func lockWith(tools ...string) *pins.Lock {
	l, approved := new(pins.Lock), make(pins.Tools)
	var names []string
	for _, tool := range tools {
		name, description, _ := strings.Cut(tool, "=")
		approved[name] = pins.New([]byte(describedTool(name, description)))
		names = append(names, name)
	}
	l.Approve("a", approved, names)
	return l
}

// relist lets a backend announce a change, and answers the request for its list.
func relist(p *mcptest.Peer, result string) {
	p.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.ServeToolsList(result)
}

// wantNotApproved checks that a call has ended once, because its tool is not approved.
func (e callEnd) wantNotApproved(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if len(e.ResponseChan) != 1 {
		t.Errorf("ended %d times", len(e.ResponseChan))
		return
	}
	a := <-e.ResponseChan
	if _, ok := a.Err.(*contract.NotApprovedError); !ok || a.Err.Error() != want {
		t.Errorf("ended with %v %s, want %s", a.Err, a.Message.Raw(), want)
	}
}

// warn: new and changed tools are logged once per change, with the backend, the tool and the fields
// that changed. They are listed and callable. A removed tool is not logged.
func TestPinWarn_ChangesAreLoggedOnceAndServed(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinWarn, "a"),
		Lock: lockWith("same=s", "changed=before", "removed=r")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.ServeHandshake("")
		a.ServeToolsList(describedTools("same=s", "changed=after", "new=n"))
		h.wantNames("same", "changed", "new")
		want := []string{
			`tool_changed: definition of a tool differs from the approved one" backend=a ` +
				`tool=changed changed=description text="gateway approve a `,
			`tool_new: tool not approved" backend=a tool=new text="gateway approve a `,
		}
		logged := func() {
			t.Helper()
			synctest.Wait()
			lines := h.log.Lines("level=WARN", "tool_")
			if len(lines) != len(want) {
				t.Fatalf("logged %q, want %q", lines, want)
			}
			for i := range want {
				if !strings.Contains(lines[i], want[i]) {
					t.Errorf("logged %s, want %s", lines[i], want[i])
				}
			}
		}
		logged()
		relist(a, describedTools("new=n", "changed=after", "same=s")) // nothing has changed
		logged()
		relist(a, describedTools("changed=before", "new=n", "same=s")) // as approved
		relist(a, describedTools("changed=after", "new=n", "same=s"))  // the same change
		logged()
		relist(a, describedTools("changed=third", "new=n", "same=s"))
		want = append(want, `tool=changed changed=description`)
		logged()
		c, _ := h.callTool("", "changed")
		a.SendResult(a.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		s := h.status("a").Pins
		if !s.Approved || !slices.Equal(s.New, []string{"new"}) ||
			!slices.Equal(s.Changed, []string{"changed (description)"}) {
			t.Errorf("status %+v", s)
		}
	})
}

// warn, and there is no entry for the backend yet: nothing is compared, and changes during the run
// are logged as without a lock file. off: an entry has no effect either.
func TestPin_WithoutComparison(t *testing.T) {
	for pin, lock := range map[config.Pin]*pins.Lock{config.PinWarn: nil,
		config.PinOff: lockWith("t=approved")} {
		o := backends.Options{Backends: pinned(pin, "a"), Lock: lock}
		withHarness(t, o, func(t *testing.T, h *harness) {
			a := h.nextProcess("a")
			a.ServeHandshake("")
			a.ServeToolsList(describedTools("t=1"))
			h.wantNames("t")
			if lines := h.log.Lines("tool_"); len(lines) > 0 {
				t.Errorf("%s: logged %q", pin, lines)
			}
			relist(a, describedTools("t=2"))
			synctest.Wait()
			if lines := h.log.Lines("tool_changed", "was="); len(lines) != 1 {
				t.Errorf("%s: logged %q", pin, lines)
			}
			if s := h.status("a").Pins; s.New != nil || s.Changed != nil || s.Mode != pin {
				t.Errorf("status %+v", s)
			}
		})
	}
}

const (
	newReason     = "the tool new is new and not approved: run gateway approve a"
	changedReason = "the definition of the tool changed has changed since its approval " +
		"(description): run gateway approve a"
)

// block hides new and changed tools: they are not listed and cannot be called, under their own name
// or with the prefix. The error says what to do. An approval, also of a queued call's tool, applies
// in place.
func TestPinBlock_HidesUntilApproval(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinBlock, "a"),
		Lock: lockWith("same=s", "changed=before", "removed=r")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("s", nil, false)
		a := h.nextProcess("a")
		a.ServeHandshake("")
		a.ServeToolsList(describedTools("same=s", "changed=after", "new=n"))
		h.wantNames("same")
		if s := h.status("a"); s.Counts[catalog.Tools] != 1 || len(s.Pins.New) != 1 ||
			len(s.Pins.Changed) != 1 || s.Pins.Mode != config.PinBlock {
			t.Errorf("status %+v", s)
		}
		if lines := h.log.Lines("level=WARN", ", hidden"); len(lines) != 2 {
			t.Errorf("logged %q", lines)
		}
		for tool, want := range map[string]string{"changed": changedReason, "new": newReason,
			"other": strings.ReplaceAll(newReason, "tool new", "tool other")} {
			h.sendTo("a", "tools/call", `{"name":"`+tool+`"}`).wantNotApproved(t, want)
		}
		for _, name := range []string{"new", "a__new"} {
			if backend, err := h.NotApproved(nil, name); backend != "a" || err == nil ||
				err.Error() != newReason {
				t.Errorf("%s: %s, %v", name, backend, err)
			}
		}
		for _, name := range []string{"same", "a__same", "other", "removed"} {
			if backend, err := h.NotApproved(nil, name); backend != "" || err != nil {
				t.Errorf("%s: %s, %v", name, backend, err)
			}
		}
		a.WantNothing()
		view := h.View()
		h.SetLock(lockWith("same=s", "changed=after", "new=n"))
		h.wantNames("same", "changed", "new")
		select {
		case <-view.Changed:
		default:
			t.Error("clients are not notified")
		}
		c, _ := h.callTool("s", "new")
		a.SendResult(a.WantRequest("tools/call").ID(), "{}")
		c.wantResult(t)
		relist(a, describedTools("same=changed", "new=n")) // changes after the approval
		h.wantNames("new")
	})
}

// block, and there is no entry for the backend: everything is new, hence hidden, until an approval.
// One record tells it.
func TestPinBlock_WithoutEntryHidesEverything(t *testing.T) {
	for _, lock := range []*pins.Lock{nil, {}, {Backends: map[string]pins.Tools{"b": nil}}} {
		o := backends.Options{Backends: pinned(config.PinBlock, "a"), Lock: lock}
		withHarness(t, o, func(t *testing.T, h *harness) {
			h.OpenSession("s", nil, false)
			h.nextProcess("a").ServeStartup("one", "two")
			h.wantNames()
			if lines := h.log.Lines("level=WARN"); len(lines) != 1 || !strings.Contains(lines[0],
				`msg="tools hidden: none of them is approved" backend=a tool="one, two" records=2 `+
					`text="gateway approve a shows`) {
				t.Errorf("logged %q", lines)
			}
			h.sendTo("a", "tools/call", `{"name":"one"}`).wantNotApproved(t,
				"the tool one is new and not approved: run gateway approve a")
			if tools, known := h.ListedTools("a"); !known || len(tools) != 2 {
				t.Errorf("listed %v, %v", tools, known)
			}
		})
	}
}

// A lock file that cannot be read approves nothing: block hides everything, warn serves everything.
func TestPin_UnusableLockFailsClosed(t *testing.T) {
	l := &pins.Lock{Problem: errors.New("gateway.lock:3: damaged")}
	all := append(pinned(config.PinBlock, "a"), pinned(config.PinWarn, "b")...)
	withHarness(t, backends.Options{Backends: all, Lock: l}, func(t *testing.T, h *harness) {
		h.OpenSession("s", nil, false)
		h.nextProcess("a").ServeStartup("t")
		h.nextProcess("b").ServeStartup("u")
		h.wantNames("u")
		h.sendTo("a", "tools/call", `{"name":"t"}`).wantNotApproved(t, "its tools are hidden, "+
			"because the lock file is unusable: correct the file, then run gateway approve a")
		if lines := h.log.Lines("tool_"); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
	})
}

// Calls are checked when they are sent: a call that waits for a slot is refused if its tool has
// changed meanwhile, and sent if it is approved meanwhile.
func TestPinBlock_AppliesToQueuedCalls(t *testing.T) {
	o := withMaxInFlight(1, time.Minute)
	o.Backends[0].Tools.Pin, o.Lock = config.PinBlock, lockWith("open=o", "changed=before")
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(describedTools("open=o", "changed=before", "new=n"))
		h.OpenSession("s", nil, false)
		first, _ := h.callTool("s", "open")
		ids := wantToolCalls(t, p, "open")
		queued, later := h.sendTo("a", "tools/call", `{"name":"changed"}`),
			h.sendTo("a", "tools/call", `{"name":"new"}`)
		relist(p, describedTools("open=o", "changed=after", "new=n"))
		h.wantNames("open")
		h.SetLock(lockWith("open=o", "changed=before", "new=n"))
		h.wantNames("open", "new")
		p.SendResult(ids[0], "{}") // a call that was sent before ends normally
		first.wantResult(t)
		queued.wantNotApproved(t, changedReason)
		ids = wantToolCalls(t, p, "new")
		p.SendResult(ids[0], "{}")
		if a := <-later.ResponseChan; a.Err != nil {
			t.Errorf("the approved call ended with %v", a.Err)
		}
	})
}

// A call that waits for the start of its backend is refused if an approval is withdrawn meanwhile.
func TestPinBlock_AppliesToCallsOfStartingBackend(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinBlock, "a"), Lock: lockWith("t=x")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("s", nil, false)
		p := h.nextProcess("a")
		queued := h.sendTo("a", "tools/call", `{"name":"t"}`)
		h.SetLock(lockWith())
		p.ServeHandshake("")
		queued.wantNotApproved(t, "the tool t is new and not approved: run gateway approve a")
	})
}

// With a connection for each session, tools are compared by the list of the shared connection, and
// calls over a session's own connection are checked as well.
func TestPinBlock_AppliesToPerSessionConnections(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinBlock, "a"), Lock: lockWith("t=x")}
	o.Backends[0].Sharing = config.SharingSession
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("s", nil, false)
		shared := h.nextProcess("a")
		shared.ServeHandshake("")
		shared.ServeToolsList(describedTools("t=x", "new=n"))
		h.wantNames("t")
		permitted := h.sendTo("a", "tools/call", `{"name":"t"}`)
		own := h.nextProcess("a")
		own.ServeHandshake("")
		own.SendResult(own.WantRequest("tools/call").ID(), "{}")
		if a := <-permitted.ResponseChan; a.Err != nil {
			t.Errorf("the approved call ended with %v", a.Err)
		}
		h.sendTo("a", "tools/call", `{"name":"new"}`).wantNotApproved(t, newReason)
		own.WantNothing()
	})
}

// A reload changes tools.pin in place: the backend is not restarted.
func TestPin_ReloadAppliesInPlace(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinWarn, "a"), Lock: lockWith("t=x")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(describedTools("t=x", "u=y"))
		h.wantNames("t", "u")
		for pin, want := range map[config.Pin][]string{config.PinBlock: {"t"},
			config.PinOff: {"t", "u"}, config.PinWarn: {"t", "u"}} {
			<-h.startApply(change(pinned(pin, "a")...))
			h.wantNames(want...)
		}
		if len(h.dialTimes("a")) != 1 {
			t.Error("restarted")
		}
	})
}

// A backend that a reload starts or restarts uses the lock file that is in force when it begins to
// serve, even if that was replaced during the start.
func TestPinBlock_LockChangesDuringReload(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinBlock, "a"), Lock: lockWith("t=x", "u=y")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(describedTools("t=x", "u=y"))
		h.wantNames("t", "u")
		applied := h.startApply(change(withEnv(o.Backends[0], "other")))
		next := h.nextProcess("a")
		next.ServeHandshake("")
		h.SetLock(lockWith("t=x"))
		h.wantNames("t") // of the old process
		next.ServeToolsList(describedTools("t=x", "u=y"))
		<-applied
		h.wantNames("t")
	})
}

// The lists of the last run are compared before they are served.
func TestPinBlock_AppliesToCachedList(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinOff, "a"), StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(describedTools("t=x", "u=y"))
		h.wantNames("t", "u")
	})
	o.Backends, o.Lock = pinned(config.PinBlock, "a"), lockWith("t=x", "u=z")
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.wantNames("t")
		if _, known := h.ListedTools("a"); known {
			t.Error("a cached list counts as a list of this run")
		}
		if lines := h.log.Lines("tool_changed", "tool=u"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(describedTools("t=x", "u=y"))
		h.wantNames("t")
		if lines := h.log.Lines("tool_changed", "tool=u"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
	})
}

// A tool that the filters deny is neither compared nor offered for an approval, and its existence
// is not shown by an error.
func TestPinBlock_FiltersComeFirst(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinBlock, "a"), Lock: lockWith("t=x")}
	o.Backends[0].Tools.Deny = []string{"secret"}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.OpenSession("s", nil, false)
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(describedTools("t=x", "secret=y"))
		h.wantNames("t")
		h.sendTo("a", "tools/call", `{"name":"secret"}`).wantForbidden(t, "denied")
		if _, err := h.NotApproved(nil, "secret"); err != nil {
			t.Error(err)
		}
		if tools, _ := h.ListedTools("a"); len(tools) != 1 {
			t.Errorf("%d tools", len(tools))
		}
		if s := h.status("a").Pins; s.New != nil {
			t.Errorf("%+v", s)
		}
		allowed := slices.Clone(o.Backends)
		allowed[0].Tools.Deny = nil
		<-h.startApply(change(allowed...)) // permitted by the filters, and new
		h.wantNames("t")
		if _, err := h.NotApproved(nil, "secret"); err == nil {
			t.Error("not hidden")
		}
	})
}

// The list of a backend that hides tools is not shared between clients, even if the backend marks
// it as public.
func TestPinBlock_ListIsPrivate(t *testing.T) {
	o := backends.Options{Backends: withUnknownGeneration(pinned(config.PinBlock, "a")...),
		Lock: lockWith("t=x")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		p.ServeDiscover("")
		p.ServeToolsList(`{"resultType":"complete","cacheScope":"public","tools":[` +
			describedTool("t", "x") + `]}`)
		h.wantNames("t")
		if _, private := h.View().Freshness(catalog.Tools); !private {
			t.Error("public")
		}
		<-h.startApply(change(withUnknownGeneration(pinned(config.PinWarn, "a")...)...))
		if _, private := h.View().Freshness(catalog.Tools); private {
			t.Error("private without a reason")
		}
	})
}

// The number of records about tools that are not approved is bounded, and so are the names in them.
func TestPin_LoggedToolsAreBounded(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinWarn, "a"), Lock: lockWith("t=x")}
	withHarness(t, o, func(t *testing.T, h *harness) {
		var many []string
		for i := range 100 {
			many = append(many, fmt.Sprintf(`{"name":"n%03d","inputSchema":{"type":"object"}}`, i))
		}
		fields := `"description":"x"`
		for i := range 1000 {
			fields += fmt.Sprintf(`,"f%04d%s":1`, i, strings.Repeat("f", 100))
		}
		many = append(many, `{"name":"a",`+fields+`,"inputSchema":{"type":"object"}}`,
			`{"name":"t",`+fields+`,"inputSchema":{"type":"object"}}`)
		p := h.nextProcess("a")
		p.ServeHandshake("")
		p.ServeToolsList(`{"tools":[` + strings.Join(many, ",") + `]}`)
		synctest.Wait()
		lines := h.log.Lines("level=WARN")
		if len(lines) != 21 || !strings.Contains(lines[20], "records=82") {
			t.Errorf("%d records, the last is %.500q", len(lines), lines[len(lines)-1])
		}
		if s := h.status("a").Pins; len(s.Changed) != 1 || len(s.Changed[0]) > 500 {
			t.Errorf("%.1000q", s.Changed)
		}
	})
}

// nameLock returns a lock file in which the tool search of two backends is approved, and the name
// search belongs to b.
func nameLock() *pins.Lock {
	l := new(pins.Lock)
	for _, backend := range []string{"a", "b"} {
		l.Approve(backend, pins.Tools{"search": pins.New([]byte(
			`{"name":"search","inputSchema":{"type":"object"}}`))}, nil)
	}
	l.Names["search"], l.Names["a__search"] = "b", "a"
	return l
}

// block: a name does not move to another backend, even if its owner no longer lists the tool or is
// removed. Who has listed it earlier cannot call it by this name either.
func TestPinBlock_NameStaysWithItsBackend(t *testing.T) {
	for _, blocks := range []string{"a", "b"} {
		o := backends.Options{Backends: pinned(config.PinWarn, "a", "b"), Lock: nameLock()}
		for i := range o.Backends {
			if o.Backends[i].Name == blocks {
				o.Backends[i].Tools.Pin = config.PinBlock
			}
		}
		withHarness(t, o, func(t *testing.T, h *harness) {
			h.OpenSession("s", nil, false)
			a, b := h.nextProcess("a"), h.nextProcess("b")
			a.ServeStartup("search")
			b.ServeStartup("search")
			h.wantNames("a__search", "search")
			relist(b, mcptest.ToolsResult())
			h.wantNames("a__search")
			h.sendTo("a", "tools/call", `{"name":"search"}`).wantNotApproved(t,
				"the name search is approved for backend b: run gateway approve a")
			e := callEnd{make(backends.ResponseChan, 2)}
			h.NewCall("a", contract.BackendRequest{Session: "s", Entry: "search",
				Name:    []byte(`"search"`),
				Message: wire.NewRequest("0", "tools/call", []byte(`{"name":"a__search"}`))},
				e.ResponseChan).Send()
			a.SendResult(a.WantRequest("tools/call").ID(), "{}")
			if r := <-e.ResponseChan; r.Err != nil {
				t.Errorf("under its own name: %v", r.Err)
			}
			if blocks == "a" { // otherwise nobody is left who blocks
				<-h.startApply(change(o.Backends[0]))
				h.wantNames("a__search")
			}
			l := nameLock()
			l.Approve("a", l.Backends["a"], []string{"search"})
			h.SetLock(l)
			h.wantNames("search")
		})
	}
}

// A reload that sets block takes names away at once, even while it waits for another backend.
func TestPinBlock_ReloadMovesNamesAtOnce(t *testing.T) {
	o := backends.Options{Backends: pinned(config.PinWarn, "a"), Lock: nameLock()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("search")
		h.wantNames("search")
		applied := h.startApply(change(append(pinned(config.PinBlock, "a"),
			pinned(config.PinOff, "slow")...)...))
		slow := h.nextProcess("slow")
		h.wantNames("a__search")
		slow.ServeStartup()
		<-applied
	})
}

// warn: a name that moves to another backend is logged once, and served. off: it is not logged.
func TestPinWarn_MovedNameIsLogged(t *testing.T) {
	for _, pin := range []config.Pin{config.PinWarn, config.PinOff} {
		o := backends.Options{Backends: pinned(pin, "a", "b"), Lock: nameLock()}
		withHarness(t, o, func(t *testing.T, h *harness) {
			a, b := h.nextProcess("a"), h.nextProcess("b")
			a.ServeStartup("search")
			b.ServeStartup("other")
			h.wantNames("search", "other")
			relist(b, mcptest.ToolsResult("another"))
			h.wantNames("search", "another")
			lines := h.log.Lines("name belongs to another backend than the approved one")
			if pin == config.PinOff {
				if len(lines) > 0 || h.MovedNames() != nil {
					t.Errorf("logged %q", lines)
				}
				return
			}
			if len(lines) != 1 || !strings.Contains(lines[0], "tool=search backend=a was=b ") {
				t.Errorf("logged %q", lines)
			}
			if want := []catalog.Move{{Kind: catalog.Tools, Name: "search", From: "b",
				To: "a"}}; !slices.Equal(h.MovedNames(), want) {
				t.Errorf("moves %v", h.MovedNames())
			}
		})
	}
}

// The permission of a call costs no memory, with and without block.
func TestPin_PermissionAllocations(t *testing.T) {
	for _, pin := range []config.Pin{config.PinOff, config.PinWarn, config.PinBlock} {
		o := backends.Options{Backends: pinned(pin, "a"), Lock: lockWith("t=x")}
		withHarness(t, o, func(t *testing.T, h *harness) {
			p := h.nextProcess("a")
			p.ServeHandshake("")
			p.ServeToolsList(describedTools("t=x"))
			h.wantNames("t")
			r := contract.BackendRequest{Entry: "t",
				Message: wire.NewRequest("0", "tools/call", []byte(`{"name":"t"}`))}
			if n := testing.AllocsPerRun(100, func() {
				if h.Permits("a", r) != nil {
					t.Error("refused")
				}
			}); n > 1 { // of the test: the request
				t.Errorf("%s: %v allocations", pin, n)
			}
		})
	}
}
