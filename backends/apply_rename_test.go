package backends_test

import (
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
)

// Two backends have the same program, and both are renamed and get stricter filters: the filters of
// both take effect at once, and both serve under their old names until the new ones are ready.
func TestApply_FiltersOfTwoRenamedBackends(t *testing.T) {
	all := legacyBackends("a", "b", "c", "d")
	for i := range all {
		all[i].Command = all[0].Command
	}
	all[2].Tools = config.ToolSettings{Deny: []string{"t"}}
	all[3].Tools = config.ToolSettings{Deny: []string{"v"}}
	withHarness(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t", "u")
		h.nextProcess("b").ServeStartup("v", "w")
		h.wantNames("t", "u", "v", "w")
		done := h.startApply(change(all[2:]...))
		c, d := h.nextProcess("c"), h.nextProcess("d")
		h.wantNames("u", "w")
		time.Sleep(20 * time.Second)
		h.wantNames("u", "w")
		d.ServeStartup("v", "w")
		h.wantNames("u", "w")
		c.ServeStartup("t", "u")
		<-done
		h.wantNames("u", "w")
	})
}

// A backend that is disabled, or whose program only one new backend has, is not renamed, so it is
// removed at once.
func TestApply_RemovesBackendThatIsNotRenamed(t *testing.T) {
	all := legacyBackends("a", "b", "c")
	for i := range all {
		all[i].Command = all[0].Command
	}
	for name, next := range map[string][]config.Backend{
		"disabled": {disabled(all[1]), all[0], all[2]},
		"removed":  {all[2]},
	} {
		t.Run(name, func(t *testing.T) {
			withHarness(t, backends.Options{Backends: all[:2]}, func(t *testing.T, h *harness) {
				h.nextProcess("a").ServeStartup("t")
				h.nextProcess("b").ServeStartup("u")
				h.wantNames("t", "u")
				done := h.startApply(change(next...))
				c := h.nextProcess("c")
				h.wantNames("t")
				c.ServeStartup("v")
				<-done
			})
		})
	}
}

func disabled(c config.Backend) config.Backend {
	c.Enabled = false
	return c
}
