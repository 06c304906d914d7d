package backends_test

import (
	"strings"
	"testing"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/mcptest"
)

// Instructions of backends of both generations are merged. The number of cut characters is logged
// once, and a reload replaces the instructions without a restart of any server.
func TestInstructions_OfBothGenerationsAndReplacedByAReload(t *testing.T) {
	long := strings.Repeat("x", 3000)
	all := withUnknownGeneration(legacyBackends("a", "b")...)
	withHarness(t, backends.Options{Backends: all}, func(t *testing.T, h *harness) {
		a := h.nextProcess("a")
		a.SendResult(a.WantRequest("server/discover").ID(),
			strings.Replace(mcptest.DiscoverResult, "{", `{"instructions":"Use a.",`, 1))
		a.ServeToolsList(mcptest.ToolsResult("t"))
		b := h.nextProcess("b")
		b.SendError(b.WantRequest("server/discover").ID(), `{"code":-32601,"message":"no"}`)
		b.ServeHandshake(
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"instructions":"` + long +
				`"}`)
		b.ServeToolsList(mcptest.ToolsResult("u"))
		a.WantNothing()
		v := h.View()
		if text := v.Instructions; len([]rune(text)) != 2048 ||
			!strings.HasPrefix(text, "## a\n\nUse a.\n\n## b\n\nxx") ||
			!strings.HasSuffix(text, "x…") {
			t.Errorf("got %d: %s", len([]rune(text)), text)
		}
		if records := h.log.Lines("level=INFO", "left out"); len(records) != 1 {
			t.Errorf("logged %q", records)
		}
		for i := range all {
			all[i].Instructions = "other"
		}
		o := catalog.Options{BackendInstructions: map[string]string{"b": "Use b."}}
		if err := h.Apply(t.Context(), backends.Change{Backends: all, Catalog: o}); err != nil {
			t.Fatal(err)
		}
		if got := h.View().Instructions; got != "## a\n\nUse a.\n\n## b\n\nUse b." {
			t.Errorf("got %q", got)
		}
		if len(h.dialTimes("a"))+len(h.dialTimes("b")) != 2 {
			t.Error("a server was started again")
		}
	})
}
