package gateway_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// Server info, instructions and capabilities are those of the backends that are known at the
// handshake.
func TestMission_C_InitializeUsesKnownCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{stateDir: t.TempDir()}
		for range 2 {
			h := newHarness(t, o, "gh")
			client, served := h.connectClient()
			got := client.Initialize("2025-06-18")
			p := h.nextProcess("gh")
			p.ServeHandshake(
				`{"protocolVersion":"2024-11-05","capabilities":{"tools":{},"logging":{"x":1}},"instructions":"Use <search>."}`)
			p.ServeToolsList(mcptest.ToolsResult("search"))
			listTools(t, client)
			caps := `"resources":{"listChanged":true,"subscribe":true},"logging":{},"completions":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`
			if o.grace != 0 {
				caps = `"resources":{"listChanged":true},"logging":{"x":1}`
			}
			want := `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},` + caps +
				`},"serverInfo":{"name":"mcp-gateway","version":"test"}`
			if o.grace != 0 {
				want += `,"instructions":"## gh\n\nUse <search>."`
			}
			if got != want+"}" {
				t.Errorf("got %s\nwant %s}", got, want)
			}
			client.CloseSend()
			<-served
			o.grace = time.Second // in the second round
		}
	})
}

func TestMission_C_CollisionIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh", "docs")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		h.nextProcess("gh").ServeStartup("search", "own")
		docs := h.nextProcess("docs")
		docs.ServeStartup("search")
		if got := listTools(t, client); got !=
			`{"tools":[{"name":"search","inputSchema":{"type":"object"}},{"name":"own","inputSchema":{"type":"object"}},{"name":"docs__search","inputSchema":{"type":"object"}}]}` {
			t.Errorf("got %s", got)
		}
		docs.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		docs.ServeToolsList(mcptest.ToolsResult("search", "more"))
		synctest.Wait()
		if lines := h.log.Lines("name collision"); len(lines) != 1 ||
			!strings.Contains(lines[0], "backend=docs tool=search as=docs__search owner=gh") {
			t.Errorf("logged %q", lines)
		}
	})
}

func TestSTART_01_START_07_InitializeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// no backend responds
		names := []string{"b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"}
		h := newHarness(t, settings{}, names...)
		client, _ := h.connectClient()
		began := time.Now()
		client.Initialize("2025-06-18")
		if took := time.Since(began); took != 0 {
			t.Errorf("initialize took %v", took)
		}
		if got := listTools(t, client); got != `{"tools":[]}` {
			t.Errorf("got %s", got)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the first list took %v, want catalog.wait", took)
		}
		listTools(t, client)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the second list took %v more", took-3*time.Second)
		}
	})
}

func TestSTART_08_DiscoverStartsNoBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, served := h.connectClient()
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
		client.Next()
		client.Send(modernRequest("2", "server/discover", "", clientCaps))
		client.Next()
		client.Send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		client.Next()
		began := time.Now()
		client.CloseSend()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		if len(h.queues["gh"]) != 0 {
			t.Error("a backend was started")
		}
	})
}

// With the tools in the cache on disk, the first list requires no backend. A backend with other
// tools than in the cache causes a notification; an unchanged backend does not.
func TestCachedCatalogIsListedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{stateDir: t.TempDir()}
		first := newHarness(t, o, "gh", "docs")
		client, _ := first.connectClient()
		client.Initialize("2025-06-18")
		first.nextProcess("gh").ServeStartup("search")
		first.nextProcess("docs").ServeStartup("search")
		want := listTools(t, client)

		h := newHarness(t, o, "gh", "docs")
		client, _ = h.connectClient()
		client.Initialize("2025-06-18")
		began := time.Now()
		if got := listTools(t, client); got != want || time.Since(began) != 0 {
			t.Errorf("after %v: %s\nwant %s", time.Since(began), got, want)
		}
		client.Send(toolsCall("1", "docs__search")) // waits until its backend has started
		client.WantNothing()
		gh, docs := h.nextProcess("gh"), h.nextProcess("docs")
		docs.ServeHandshake("")
		m := docs.WantRequest("tools/call")
		docs.SendResult(m.ID(), `{"docs":1}`)
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{"docs":1}}`)
		docs.ServeToolsList(mcptest.ToolsResult("search"))
		time.Sleep(time.Second)
		client.WantNothing()
		gh.ServeStartup("search", "more")
		client.WantNotification("notifications/tools/list_changed")
		time.Sleep(time.Second)
		client.WantNothing()
	})
}

// The client is notified of each change once. It is not notified if the change is reverted within
// coalesce, or if it has already read the changed list. It is notified when the list later changes
// back.
func TestNOTIF_07_ChangeIsNotifiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("a")
		listTools(t, client)
		change := func(name string) {
			t.Helper()
			gh.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			gh.ServeToolsList(mcptest.ToolsResult(name))
			synctest.Wait()
		}
		change("b")
		time.Sleep(time.Second)
		client.WantNotification("notifications/tools/list_changed")
		change("c") // reverted within coalesce
		change("b")
		time.Sleep(time.Second)
		client.WantNothing()
		listTools(t, client) // the list with b
		synctest.Wait()      // firstPage has compared the list with the current one
		change("c")
		listTools(t, client) // before the notification
		time.Sleep(time.Second)
		client.WantNothing()
		change("b")
		time.Sleep(time.Second)
		client.WantNotification("notifications/tools/list_changed")
		client.WantNothing()
	})
}

// PAGE-03: all pages are listed, and an invalid cursor is rejected.
func TestPAGE_03_AllPagesAreListedAndCallable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeHandshake("")
		var names []string
		for i := range 101 {
			names = append(names, fmt.Sprintf("t%03d", i))
		}
		for page := range 3 {
			m := gh.WantRequest("tools/list")
			want := []string{"", `"c\u0031"`, `""`}[page]
			if got := string(m.Part(wire.PartCursor)); got != want {
				t.Errorf("page %d was requested with the cursor %s, want %s", page, got, want)
			}
			result := mcptest.ToolsResult(names[page*50 : min(page*50+50, 101)]...)
			if page < 2 {
				result = strings.TrimSuffix(result, "}") + `,"nextCursor":` +
					[]string{`"c\u0031"`, `""`}[page] + "}"
			}
			gh.SendResult(m.ID(), result)
		}
		if got := listTools(t, client); got != mcptest.ToolsResult(names...) {
			t.Errorf("got %s", got)
		}
		client.Send(toolsCall("1", "t100"))
		gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestDamagedCatalogCacheIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings{stateDir: t.TempDir()}
		h := newHarness(t, o, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		h.nextProcess("gh").ServeStartup("search")
		want := listTools(t, client)
		files, _ := filepath.Glob(filepath.Join(o.stateDir, "*"))
		if len(files) != 1 {
			t.Fatalf("files: %q", files)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		// valid JSON except for one byte, which must not be sent to a client
		if err := os.WriteFile(files[0], []byte(strings.Replace(string(text), "search", "sear\xff",
			1)), 0o600); err != nil {
			t.Fatal(err)
		}
		h = newHarness(t, o, "gh")
		client, _ = h.connectClient()
		client.Initialize("2025-06-18")
		client.Send(listRequest)
		client.WantNothing()
		h.nextProcess("gh").ServeStartup("search")
		client.Want(`{"jsonrpc":"2.0","id":"list","result":` + want + `}`)
		if loud := h.log.Warnings(); len(loud) != 1 || !strings.Contains(loud[0], "damaged") {
			t.Errorf("logged %q", loud)
		}
	})
}
