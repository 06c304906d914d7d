package backends_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

const toolsChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// wantRoute checks the backend of a tool's name, "" = none.
func (h *harness) wantRoute(name, backend, own string) {
	h.t.Helper()
	synctest.Wait()
	r, _ := h.View().Lookup(catalog.Tools, name)
	if r.Backend != backend || r.Original != own {
		h.t.Errorf("%s leads to %q %q, want %q %q", name, r.Backend, r.Original, backend, own)
	}
}

// wantMoves checks the log records of names that belong to another backend.
func (h *harness) wantMoves(lines ...string) {
	h.t.Helper()
	synctest.Wait()
	got := h.log.Lines("level=WARN", `moved to another backend"`)
	if len(got) != len(lines) {
		h.t.Errorf("logged %q, want %q", got, lines)
		return
	}
	for i, want := range lines {
		if !strings.HasSuffix(got[i], want) {
			h.t.Errorf("logged %q, want %q", got[i], want)
		}
	}
}

// A tool whose name begins with the prefix of another backend is not exposed under that name, even
// if the other backend has failed, is disabled, or was removed after it had run.
func TestNames_ToolWithPrefixOfOtherBackend_F_SEC_3(t *testing.T) {
	all := legacyBackends("evil", "github")
	all = append(all, config.Backend{Name: "off", Command: "off"})
	withFailingHarness(t, startErrors{"github": errors.New("no such file")},
		backends.Options{Backends: all}, func(t *testing.T, h *harness) {
			evil := h.nextProcess("evil")
			evil.ServeStartup("github__create_issue", "off__x", "own")
			h.wantNames("evil__github__create_issue", "evil__off__x", "own")
			h.wantRoute("github__create_issue", "", "")
			h.wantRoute("off__x", "", "")
			if name, err := h.WhyUnavailable(nil, "github__create_issue"); name != "github" ||
				err == nil {
				t.Errorf("explained by %q %v", name, err)
			}
			warned := h.log.Lines("level=WARN", "begins with the name of another backend")
			if len(warned) != 2 || !strings.Contains(warned[0],
				`backend=evil tool=github__create_issue as=evil__github__create_issue owner=github`) {
				t.Errorf("logged %q", warned)
			}
			<-h.startApply(change(all[0])) // off never ran, so no client has seen its tools
			h.wantNames("evil__github__create_issue", "off__x", "own")
			h.wantRoute("github__create_issue", "", "")
		})
}

// If a backend adds a tool whose name a later backend in the configuration already has, the later
// backend keeps the name.
func TestNames_EarlierBackendAddsTool_F_SEC_3(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a, b := h.nextProcess("a"), h.nextProcess("b")
		a.ServeStartup("x")
		b.ServeStartup("search")
		h.wantRoute("search", "b", "search")
		a.Send(toolsChanged)
		a.ServeToolsList(mcptest.ToolsResult("x", "search"))
		h.wantNames("x", "a__search", "search")
		h.wantRoute("search", "b", "search")
		if lines := h.log.Lines("name collision",
			"backend=a tool=search as=a__search owner=b"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		h.wantMoves()

		b.Close() // b keeps the name while it is down, and afterwards
		h.wantRoute("search", "b", "search")
		b = h.nextProcess("b")
		b.ServeStartup("search")
		h.wantRoute("search", "b", "search")
		h.wantMoves()

		b.Send(toolsChanged) // b loses the name
		b.ServeToolsList(mcptest.ToolsResult("other"))
		h.wantRoute("search", "a", "search")
		h.wantMoves("tool=search backend=a was=b")
		b.Send(toolsChanged)
		b.ServeToolsList(mcptest.ToolsResult("search"))
		h.wantRoute("search", "a", "search")
		h.wantMoves("tool=search backend=a was=b")
	})
}

// A backend is replaced by another program, which fails. Its names are not given to others.
func TestNames_ReplacedBackendKeepsNames_F_SEC_3(t *testing.T) {
	all := legacyBackends("a", "b")
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("search")
		b := h.nextProcess("b")
		b.ServeStartup("search", "fetch")
		h.wantNames("search", "b__search", "fetch")
		h.breakDial("a", errors.New("no such file"))
		<-h.startApply(change(withEnv(all[0], "new"), all[1]))
		h.wantNames("b__search", "fetch")
		h.wantRoute("search", "a", "search") // calls fail with the reason
		h.wantMoves()
		h.breakDial("a", nil)
		h.RetryFailed()
		h.nextProcess("a").ServeStartup("search")
		h.wantNames("search", "b__search", "fetch")
		h.wantMoves()
		<-h.startApply(change(all[1]))
		h.wantNames("search", "fetch")
		h.wantMoves("tool=search backend=b was=a")
	})
}

// A backend that is added before another backend takes no name from it. A change of the order moves
// the name, and the log reports the move.
func TestNames_ReloadMovesNamesByOrderOnly_F_SEC_3(t *testing.T) {
	all := legacyBackends("first", "a", "b")
	withHarness(t, backends.Options{Backends: all[1:]}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("search")
		h.nextProcess("b").ServeStartup("search")
		h.wantNames("search", "b__search")
		done := h.startApply(change(all...))
		h.nextProcess("first").ServeStartup("search")
		<-done
		h.wantNames("first__search", "search", "b__search")
		h.wantMoves()
		<-h.startApply(change(all[2], all[1], all[0]))
		h.wantNames("search", "a__search", "first__search")
		h.wantMoves("tool=search backend=b was=a")
	})
}

// Names are assigned in configuration order until lists are sent.
func TestNames_AssignedByOrderAtStart_F_SEC_3(t *testing.T) {
	withHarness(t, backends.Options{Backends: legacyBackends("a", "b")},
		func(t *testing.T, h *harness) {
			a := h.nextProcess("a")
			h.nextProcess("b").ServeStartup("search")
			synctest.Wait()
			a.ServeStartup("search")
			h.wantNames("search", "b__search")
			h.wantRoute("search", "a", "search")
			h.wantMoves()
		})
}

func TestNames_ManyMovesAreSummedUp_F_SEC_3(t *testing.T) {
	var names []string
	for i := range 25 {
		names = append(names, "t"+strings.Repeat("x", i+1))
	}
	withHarness(t, backends.Options{Backends: legacyBackends("a", "b")},
		func(t *testing.T, h *harness) {
			a := h.nextProcess("a")
			a.ServeStartup(names...)
			h.nextProcess("b").ServeStartup(names...)
			synctest.Wait()
			a.Send(toolsChanged)
			a.ServeToolsList(mcptest.ToolsResult("other"))
			synctest.Wait()
			if lines := h.log.Lines(`moved to another backend"`,
				"tx, txx, txxx, txxxx, txxxxx and 20 more"); len(lines) != 1 {
				t.Errorf("logged %q", lines)
			}
		})
}

// When lists can be sent, the owners of the names are compared with the record of the last run.
func TestNames_SinceLastRun_F_CLI_6(t *testing.T) {
	record := func(names ...string) (all catalog.Assignments) {
		all[catalog.Tools] = map[string]catalog.Assignment{}
		for _, name := range names {
			all[catalog.Tools][name] = catalog.Assignment{Backend: "a", Original: name}
		}
		return all
	}
	lines := func(h *harness) []string {
		synctest.Wait()
		return h.log.Lines("level=WARN", "since the last run")
	}
	t.Run("added before", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: legacyBackends("first", "a"),
			NameOwners: record("read", "write")}, func(t *testing.T, h *harness) {
			h.nextProcess("first").ServeStartup("read", "write", "new")
			if got := lines(h); len(got) != 0 {
				t.Errorf("before lists are sent: %q", got)
			}
			a := h.nextProcess("a")
			a.ServeStartup("read", "write")
			got := lines(h)
			if len(got) != 1 || !strings.HasSuffix(got[0],
				`tool="read, write" backend=first was=a`) {
				t.Errorf("logged %q", got)
			}
			a.Send(toolsChanged)
			a.ServeToolsList(mcptest.ToolsResult("read"))
			if got := lines(h); len(got) != 1 {
				t.Errorf("logged again: %q", got)
			}
		})
	})
	t.Run("removed, and listed late", func(t *testing.T) {
		withHarness(t, backends.Options{Backends: legacyBackends("b"), NameOwners: record("read")},
			func(t *testing.T, h *harness) {
				b := h.nextProcess("b")
				b.ServeStartup("other")
				h.wantMoves()
				b.Send(toolsChanged)
				b.ServeToolsList(mcptest.ToolsResult("other", "read"))
				h.wantMoves("tool=read backend=b was=a")
			})
	})
	t.Run("fails and recovers", func(t *testing.T) {
		withFailingHarness(t, startErrors{"a": errors.New("no such file")},
			backends.Options{Backends: legacyBackends("a", "b"), NameOwners: record("read")},
			func(t *testing.T, h *harness) {
				h.nextProcess("b").ServeStartup("read")
				h.wantNames("b__read")
				h.wantRoute("read", "a", "read") // calls fail with the reason
				h.breakDial("a", nil)
				h.RetryFailed()
				h.nextProcess("a").ServeStartup("read")
				h.wantNames("read", "b__read")
				if got := lines(h); len(got) != 0 {
					t.Errorf("logged %q", got)
				}
				h.wantMoves()
			})
	})
}

func TestNames_LoggedMovesAreBounded_F_CLI_6(t *testing.T) {
	var all catalog.Assignments
	all[catalog.Tools] = map[string]catalog.Assignment{}
	var names []string
	for i := range 25 {
		name := "t" + strings.Repeat("x", i+1)
		names = append(names, name)
		all[catalog.Tools][name] = catalog.Assignment{Backend: "was" + name, Original: name}
	}
	withHarness(t, backends.Options{Backends: legacyBackends("b"), NameOwners: all},
		func(t *testing.T, h *harness) {
			h.nextProcess("b").ServeStartup(names...)
			synctest.Wait()
			if one, more := h.log.Lines("since the last run"),
				h.log.Lines("further names moved", "records=5"); len(one) != 20 ||
				len(more) != 1 {
				t.Errorf("%d lines, %q", len(one), more)
			}
		})
}
