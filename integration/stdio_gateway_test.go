//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// notesFile returns a path for the notes of a helper.
func notesFile(t testing.TB) string { return filepath.Join(t.TempDir(), "notes") }

func TestStdout_OnlyJSONRPC(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "1s"}},
		helperBackend("banner", "banner", ""), helperBackend("unresponsive", "unresponsive", ""),
		helperBackend("mirror", "mirror", ""), backend{Name: "demo", Embedded: "demo"})
	gw := s.start("--log-level", "debug")
	gw.initialize("2025-06-18")
	listTools(t, gw)
	gw.send("this is not JSON")
	gw.send("")
	gw.send(`{"jsonrpc":"2.0","id":"x"`)
	gw.send(`{"id":1,"method":"ping"}`)
	callTool(gw, "request", `{}`)
	callTool(gw, "die", `{}`)
	callTool(gw, "echo", `{"text":"x"}`)
	gw.call("nonsense", `{}`)
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := len(gw.received()); n < 9 {
		t.Errorf("only %d lines on stdout", n)
	}
	gw.checkPure()
}

func TestRevision_NegotiationAndBatches(t *testing.T) {
	t.Parallel()
	for _, revision := range append(slices.Clone(revisions), "1999-01-01", "2026-07-28") {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			gw := newSetup(t, nil, helperBackend("mirror", "mirror", "")).start()
			want := revision
			if !slices.Contains(revisions, revision) {
				want = "2025-11-25"
			}
			var result struct {
				ProtocolVersion string
				Capabilities    struct{ Tools struct{ ListChanged bool } }
				ServerInfo      struct{ Name, Version string }
			}
			m := gw.initialize(revision)
			if err := json.Unmarshal(m.Result, &result); err != nil ||
				result.ProtocolVersion != want || !result.Capabilities.Tools.ListChanged ||
				result.ServerInfo.Name == "" || result.ServerInfo.Version == "" {
				t.Errorf("initialize: %v: %s", err, m.Raw)
			}
			gw.send(
				`[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}},` +
					`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"request"}},{"jsonrpc":"2.0","id":"c","method":"nonsense"}]`)
			if want > "2025-03-26" {
				if m := gw.awaitResponse("null", waitTimeout); m.code() != -32600 {
					t.Errorf("batch: %s", m.Raw)
				}
				return
			}
			line, err := gw.find(waitTimeout,
				func(line []byte) bool { return len(line) > 0 && line[0] == '[' })
			if err != nil {
				t.Fatalf("batch: %v", err)
			}
			var responses []message
			if err := json.Unmarshal(line, &responses); err != nil || len(responses) != 3 {
				t.Fatalf("batch: %v: %s", err, line)
			}
			if string(responses[0].ID) != `"a"` || string(responses[1].ID) != `"b"` ||
				string(responses[2].ID) != `"c"` || responses[1].Result == nil ||
				responses[2].code() != -32601 {
				t.Errorf("batch: %s", line)
			}
		})
	}
}

func TestIDs_KeepTypeAndText(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, helperBackend("mirror", "mirror", ""))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	ids := []string{`0`, `-1`, `""`, `"1"`, `1`, `9007199254740993`, `"ünï 🙂"`, `"\u00fc"`,
		`"9007199254740993"`}
	for _, id := range ids { // all calls are in flight at once
		quoted, _ := json.Marshal(id)
		gw.sendRequest(id, "tools/call",
			`{"name":"request","arguments":{"under":`+string(quoted)+`}}`)
	}
	for _, id := range ids {
		m := gw.awaitResponse(id, waitTimeout)
		quoted, _ := json.Marshal(id)
		if seen := seenByMirror(t, m); string(seen.Params.Arguments) != `{"under":`+string(quoted)+
			`}` {
			t.Errorf("id %s has the response to %s", id, seen.Params.Arguments)
		}
	}
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var audited []string
	for _, r := range s.records() {
		r.checkComplete(t)
		i := slices.IndexFunc(ids,
			func(id string) bool { return matchesID(r.ID, json.RawMessage(id)) })
		if i < 0 {
			t.Errorf("audit: id %s was never sent", r.ID)
			continue
		}
		audited = append(audited, ids[i])
	}
	slices.Sort(audited)
	slices.Sort(ids)
	if len(audited) != len(ids) {
		t.Errorf("audited ids %s, want %s", audited, ids)
	}
}

// seen is a request in the form that the mirror received.
type seen struct {
	ID     json.RawMessage
	Params struct {
		Name      string
		Arguments json.RawMessage
		Meta      json.RawMessage `json:"_meta"`
		Extra     json.RawMessage `json:"x-extra"`
	}
}

func seenByMirror(t testing.TB, m message) seen {
	t.Helper()
	var result struct{ Content []struct{ Text string } }
	var s seen
	if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
		t.Fatalf("not a response of the mirror: %v: %s", err, m.Raw)
	}
	if err := json.Unmarshal([]byte(result.Content[0].Text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFIDELITY_02_FIDELITY_04_ArgumentsUnchangedAndAuditHasBothIDs(t *testing.T) {
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"},
		helperBackend("mirror", "mirror", ""))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	const arguments = `{"id":9223372036854775807, "f":1.10,"e":1e400,"s":"<a>&</a> \u003c ü \u00fc \/", "dup":{"b":1,"a":2}}`
	gw.sendRequest(`"join-me"`, "tools/call",
		`{"x-extra":[1, 2],"name":"request","arguments":`+arguments+
			`,"_meta":{"progressToken":"mine","custom":{"k":1.0}}}`)
	m := gw.awaitResponse(`"join-me"`, waitTimeout)
	got := seenByMirror(t, m)
	if string(got.Params.Arguments) != arguments {
		t.Errorf("arguments: %s\nwant: %s", got.Params.Arguments, arguments)
	}
	if string(got.Params.Extra) != `[1, 2]` {
		t.Errorf("x-extra: %s", got.Params.Extra)
	}
	var meta map[string]json.RawMessage
	if err := json.Unmarshal(got.Params.Meta, &meta); err != nil ||
		string(meta["custom"]) != `{"k":1.0}` {
		t.Errorf("_meta: %s", got.Params.Meta)
	}
	if token := string(meta["progressToken"]); token == `"mine"` || token == "" {
		t.Errorf("the backend receives progress token %s", token)
	}
	if !strings.HasSuffix(string(m.Result), `"x-future": 1.10}`) {
		t.Errorf("result: %s", m.Result)
	}
	gw.finish(waitTimeout)
	records := s.records()
	if len(records) != 1 {
		t.Fatalf("%d audit records", len(records))
	}
	r := records[0]
	r.checkComplete(t)
	if !matchesID(r.ID, json.RawMessage(`"join-me"`)) || !matchesID(r.BackendID, got.ID) {
		t.Errorf("audit: id %s, backend_id %s; sent \"join-me\", the backend received %s", r.ID,
			r.BackendID, got.ID)
	}
	if r.Tool != "request" || r.Backend != "mirror" || r.BackendTool != "request" ||
		r.Outcome != "ok" || r.Client != "integration/1.0" {
		t.Errorf("audit: %s", r.line)
	}
	if r.BytesIn == nil || *r.BytesIn != int64(len(arguments)) || r.BytesOut == nil ||
		*r.BytesOut != int64(len(m.Result)) {
		t.Errorf("audit: want bytes_in %d and bytes_out %d: %s", len(arguments), len(m.Result),
			r.line)
	}
}

func TestToolsList_EntriesUnchanged(t *testing.T) {
	t.Parallel()
	gw := newSetup(t, nil, helperBackend("mirror", "mirror", "")).start()
	gw.initialize("2025-11-25")
	var raw []string
	for _, tool := range listTools(t, gw) {
		raw = append(raw, string(tool.raw))
	}
	if got := strings.Join(raw, ","); got != mirrorTools {
		t.Errorf("tools: %s\nwant: %s", got, mirrorTools)
	}
}

// lastCallID waits until the mirror has received a call of tool, and returns the id of the call.
func lastCallID(t testing.TB, notes, tool string) string {
	t.Helper()
	var id string
	if !poll(waitTimeout, func() bool {
		for _, n := range readNotes(notes) {
			var s seen
			line, ok := strings.CutPrefix(n, "got ")
			if ok && json.Unmarshal([]byte(line), &s) == nil && s.Params.Name == tool {
				id = string(s.ID)
			}
		}
		return id != ""
	}) {
		t.Fatalf("the mirror received no call of %s:\n%s", tool,
			strings.Join(readNotes(notes), "\n"))
	}
	return id
}

func TestID_09_NOTIF_13_CancelHasBackendIDAndLateResponseIsDropped(t *testing.T) {
	t.Parallel()
	notes, others := notesFile(t), notesFile(t)
	s := newSetup(t, nil, helperBackend("other", "mirror", others),
		helperBackend("mirror", "mirror", notes))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	gw.sendRequest("101", "tools/call", `{"name":"mirror__hold"}`)
	id := lastCallID(t, notes, "hold")
	gw.notify("notifications/cancelled", `{"requestId":101,"reason":"enough"}`)
	gw.notify("notifications/cancelled", `{"requestId":"never used"}`)
	note := awaitNote(t, notes, `got {"jsonrpc":"2.0","method":"notifications/cancelled"`)
	var cancel struct {
		Params struct{ RequestID json.RawMessage }
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(note, "got ")), &cancel); err != nil ||
		string(cancel.Params.RequestID) != id {
		t.Errorf("the backend received %s, the id of the call is %s", note, id)
	}
	// The mirror responds to the cancelled call. The response to this call follows on the same
	// pipe.
	callTool(gw, "mirror__request", `{}`)
	if m := gw.call("ping", `{}`); string(m.Result) != `{}` {
		t.Errorf("ping: %s", m.Raw)
	}
	gw.finish(waitTimeout)
	for _, line := range gw.received() {
		if m, err := parseMessage(line); err == nil && string(m.ID) == "101" {
			t.Errorf("response despite the cancellation: %s", line)
		}
	}
	for _, n := range readNotes(others) {
		if strings.Contains(n, "notifications/cancelled") {
			t.Errorf("the other backend received %s", n)
		}
	}
	records := s.records()
	if len(records) != 2 {
		t.Fatalf("%d audit records", len(records))
	}
	i := slices.IndexFunc(records, func(r auditRecord) bool { return r.BackendTool == "hold" })
	if i < 0 || records[i].Outcome != "cancelled" ||
		!matchesID(records[i].BackendID, json.RawMessage(id)) {
		t.Errorf("audit: %+v", records)
	}
}

// After a list, a name that was not in it is unknown, even if a backend is still starting.
func TestUnknownTool_RejectedWhileBackendStarts(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "500ms"}},
		helperBackend("mirror", "mirror", ""), helperBackend("unresponsive", "unresponsive", ""))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	gw.sendRequest("1", "tools/call", `{"name":"nonsense","arguments":{}}`)
	if m := gw.awaitResponse("1", 2*time.Second); m.code() != -32602 {
		t.Errorf("nonsense: %s", m.Raw)
	}
}

// Secrets are masked by value. A value that is also a name, as in NODE_ENV=production, must not
// mask the name in the log and the audit file.
func TestMask_KeepsNames(t *testing.T) {
	t.Parallel()
	b, token := helperBackend("production", "mirror", ""), secret(t, "env.TOKEN")
	b.Env["NODE_ENV"], b.Env["TOOL"], b.Env["TOKEN"] = "production", "request", token
	s := newSetup(t, map[string]any{"audit": map[string]any{"payloads": "all"}}, b)
	s.audit = ""
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	callTool(gw, "request", `{"token":"`+token+`"}`)
	callTool(gw, "die", `{}`)
	gw.finish(waitTimeout)
	logs := gw.logs()
	for _, part := range []string{"backend=production", "tool=request", "backend_tool=request"} {
		if !strings.Contains(logs, part) {
			t.Errorf("the log has no %s:\n%s", part, logs)
		}
	}
}

func TestCONC_11_TwoGatewaysShareConfigAndAuditFile(t *testing.T) {
	t.Parallel()
	const calls = 200
	s := newSetup(t, nil, helperBackend("mirror", "mirror", ""))
	gws := []*rawClient{s.start(), s.start()}
	for _, gw := range gws {
		gw.initialize("2025-11-25")
		listTools(t, gw)
	}
	for id := range calls {
		for _, gw := range gws {
			gw.sendRequest(fmt.Sprint(id), "tools/call", `{"name":"request","arguments":{}}`)
		}
	}
	for _, gw := range gws {
		for id := range calls {
			gw.awaitResponse(fmt.Sprint(id), waitTimeout)
		}
		if code := gw.finish(waitTimeout); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	sessions := map[string]int{}
	for _, r := range s.records() {
		r.checkComplete(t)
		sessions[r.Session]++
	}
	if len(sessions) != 2 {
		t.Errorf("%d sessions", len(sessions))
	}
	for session, n := range sessions {
		if n != calls {
			t.Errorf("session %s: %d records, want %d", session, n, calls)
		}
	}
}

func TestCatalogCache_ListedAtOnce(t *testing.T) {
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "20s"}},
		stdioBackend(t, "everything", "everything", nil))
	gw := s.start()
	gw.initialize("2025-11-25")
	first := names(listTools(t, gw))
	if code := gw.finish(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}

	gw = s.start()
	gw.call("ping", `{}`)
	began := time.Now()
	gw.initialize("2025-11-25")
	second := names(listTools(t, gw))
	took := time.Since(began)
	t.Logf("second start: listed after %v", took)
	if took > 100*time.Millisecond { // Node alone needs twice as long to start
		t.Errorf("listed after %v", took)
	}
	if len(first) != 13 || !slices.Equal(first, second) {
		t.Errorf("first %q, then %q", first, second)
	}
	if m := callTool(gw, "echo", `{"message":"hi"}`); !strings.Contains(string(m.Result),
		"Echo: hi") {
		t.Errorf("echo while the backend starts: %s", m.Raw)
	}
}

func TestRejected_UnknownToolsAndEarlyRequests(t *testing.T) {
	t.Parallel()
	mirror := helperBackend("mirror", "mirror", "")
	mirror.Tools = map[string]any{"deny": []string{"die"}}
	s := newSetup(t, nil, mirror)
	gw := s.start()
	if m := gw.call("tools/list", `{}`); m.code() != -32002 {
		t.Errorf("before initialize: %s", m.Raw)
	}
	gw.initialize("2025-11-25")
	if got, want := names(listTools(t, gw)), []string{"request", "hold"}; !slices.Equal(got, want) {
		t.Errorf("tools: %q, want %q", got, want)
	}
	for _, name := range []string{"nothing", "die", "mirror__die", "mirror__nothing"} {
		if m := callTool(gw, name, `{}`); m.code() != -32602 {
			t.Errorf("%s: %s", name, m.Raw)
		}
	}
	if m := callTool(gw, "mirror__request", `{}`); m.Result == nil {
		t.Errorf("a prefixed name that is not listed: %s", m.Raw)
	}
	gw.finish(waitTimeout)
	records := s.records()
	if len(records) != 5 {
		t.Errorf("%d audit records of 5 calls", len(records))
	}
	for _, r := range records {
		if r.BackendTool == "request" {
			continue
		}
		if r.Outcome != "rejected" && r.Outcome != "rpc_error" {
			t.Errorf("audit: %s", r.line)
		}
	}
}

func TestFRAME_04_LenientFramingAndLargeMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil, helperBackend("mirror", "mirror", ""))
	gw := s.start()
	gw.send("\ufeff" + `{"jsonrpc":"2.0","id":"init","method":"initialize","params":` +
		initializeParams("2025-11-25") + "}\r")
	if m := gw.awaitResponse(`"init"`, waitTimeout); m.Result == nil {
		t.Fatalf("initialize: %s", m.Raw)
	}
	gw.send("\r\n\n  ")
	gw.send("  " + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "  \r")
	listTools(t, gw)
	for _, size := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 10 << 20} {
		arguments := `{"x":"` + strings.Repeat("ü", (size-8)/2) + `"}`
		m := callTool(gw, "request", arguments)
		if m.Result == nil {
			t.Fatalf("%d bytes: %.300s", size, m.Raw)
		}
		if got := seenByMirror(t, m); string(got.Params.Arguments) != arguments {
			t.Errorf("%d bytes of arguments: %d arrived", len(arguments), len(got.Params.Arguments))
		}
	}
	if code := gw.finish(waitTimeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	gw.checkPure()
}

func TestDuplicateID_Rejected(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	s := newSetup(t, nil, helperBackend("mirror", "mirror", notes))
	gw := s.start()
	gw.initialize("2025-11-25")
	listTools(t, gw)
	gw.sendRequest("77", "tools/call", `{"name":"hold"}`)
	lastCallID(t, notes, "hold")
	gw.sendRequest("77", "tools/call", `{"name":"request"}`)
	if m := gw.awaitResponse("77", waitTimeout); m.code() != -32600 {
		t.Errorf("%s", m.Raw)
	}
	// The string "77" is another id than the number 77.
	gw.sendRequest(`"77"`, "tools/call", `{"name":"request"}`)
	if m := gw.awaitResponse(`"77"`, waitTimeout); m.Result == nil {
		t.Errorf("%s", m.Raw)
	}
	gw.notify("notifications/cancelled", `{"requestId":77}`)
}
