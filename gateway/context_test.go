package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// CONTEXT-05: denied tools use no context of the client's model: the list is shorter by the size
// of these tools.
func TestCONTEXT_05_FilteredToolsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kept, n = 5, 100
		long := strings.Repeat("x", 1000)
		var tools, few []string
		for i := range n {
			verb := "delete"
			if i < kept {
				verb = "search"
			}
			tool := fmt.Sprintf(
				`{"name":"%s_%d","description":"%s","inputSchema":{"type":"object"}}`, verb, i,
				long)
			if tools = append(tools, tool); i < kept {
				few = append(few, tool)
			}
		}
		size := func(filter config.ToolSettings) int {
			h := newHarness(t, settings{tools: map[string]config.ToolSettings{"gh": filter}}, "gh")
			client, _ := h.connectClient()
			client.Initialize("2025-11-25")
			gh := h.nextProcess("gh")
			gh.ServeHandshake("")
			gh.ServeToolsList(`{"tools":[` + strings.Join(tools, ",") + `]}`)
			return len(listTools(t, client))
		}
		all, allowed, denied := size(config.ToolSettings{}),
			size(config.ToolSettings{Allow: []string{"search_*"}}),
			size(config.ToolSettings{Deny: []string{"delete_*"}})
		t.Logf("%d bytes for %d tools, %d for the allowed ones", all, n, allowed)
		if want := len(`{"tools":[]}`) + len(strings.Join(few, ",")); allowed != want ||
			denied != want || all-want < (n-kept)*len(long) {
			t.Errorf("%d bytes without a filter, %d with allow, %d with deny; want %d", all,
				allowed, denied, want)
		}
	})
}

// CONTEXT-06: a large result and a tool's declared result size are forwarded unchanged.
func TestCONTEXT_06_LargeResultIsForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{maxMessage: 4 << 20}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		gh.ServeHandshake("")
		const tools = `{"tools":[{"name":"search","inputSchema":{"type":"object"},"_meta":{"anthropic/maxResultSizeChars":500000}}]}`
		gh.ServeToolsList(tools)
		if got := listTools(t, client); got != tools {
			t.Errorf("listed %s", got)
		}
		client.Send(toolsCall("1", "search"))
		text := `{"content":[{"type":"text","text":"` + strings.Repeat("é", 512<<10) +
			`"}],"_meta":{"anthropic/maxResultSizeChars":500000}}`
		gh.SendResult(gh.WantRequest("tools/call").ID(), text)
		if got, want := client.Next(), `{"jsonrpc":"2.0","id":1,"result":`+text+`}`; got != want {
			t.Errorf("%d bytes of %d arrived: %.200s", len(got), len(want), got)
		}
	})
}

// OBS-01: the status, the log, the journal and the client's error report the same state of a
// backend at the same time.
func TestOBS_01_StatusLogJournalAndClientAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var set *backends.Set
		h := newHarness(t, settings{backendSet: &set}, "gh", "docs")
		status := func() (gh, docs backends.Status) {
			synctest.Wait()
			all := set.Status()
			return all[0], all[1]
		}
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		if s, _ := status(); s.State == backends.Ready || s.Settled || set.View().Settled {
			t.Errorf("before the first list: %+v, settled %v", s, set.View().Settled)
		}
		gh.ServeStartup("search")
		h.nextProcess("docs").ServeStartup("other")
		listTools(t, client)
		if s, other := status(); s.State != backends.Ready || other.State != backends.Ready ||
			s.Err != nil || !set.View().Settled || h.log.Warnings() != nil {
			t.Errorf("with all backends ready: %+v, %+v; logged %q", s, other, h.log.Warnings())
		}
		client.Send(toolsCall("1", "search"))
		gh.WantRequest("tools/call")
		const why = "exit 3; its last words: boom"
		gh.Exit("exit 3", "boom")
		if got := client.Next(); !strings.Contains(got,
			`"data":{"backend":"gh","reason":"`+why+`"}`) {
			t.Errorf("the client got %s", got)
		}
		if s, other := status(); s.State == backends.Ready || s.Err == nil ||
			s.Err.Error() != why || other.State != backends.Ready || other.Err != nil {
			t.Errorf("status: %+v, %+v", s, other)
		}
		if got := h.log.Warnings(); len(got) != 1 || !strings.Contains(got[0], "backend=gh") ||
			!strings.Contains(got[0], `err="`+why+`"`) {
			t.Errorf("logged %q", got)
		}
		if got := h.auditRecords(); len(got) != 1 || !strings.Contains(got[0], "backend=gh") ||
			!strings.Contains(got[0], "outcome=backend_lost") {
			t.Errorf("recorded: %q", got)
		}
		again := h.nextProcess("gh") // the restarted process
		again.ServeStartup("search")
		client.Send(toolsCall("2", "search"))
		again.SendResult(again.WantRequest("tools/call").ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		time.Sleep(mcptest.JournalDelay)
		if s, _ := status(); s.State != backends.Ready || s.Err != nil ||
			len(h.auditRecords()) != 2 {
			t.Errorf("after the restart: %+v; records: %q", s, h.auditRecords())
		}
	})
}
