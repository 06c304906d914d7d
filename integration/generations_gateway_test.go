//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const elicitationCapability = `{"elicitation":{"form":{}}}`

// modernMembers are the members that results have in 2026-07-28 only.
var modernMembers = []string{"resultType", "ttlMs", "cacheScope", "_meta"}

// checkFidelity compares a result through the gateway with the backend's result, member by
// member, byte for byte. Only modernMembers may be added or missing, and they must be present
// for a modern client.
func checkFidelity(t testing.TB, what, revision string, want, got []byte) {
	t.Helper()
	if got == nil {
		t.Errorf("%s: no result", what)
		return
	}
	all := membersOf(t, got)
	has := func(name string) bool {
		return slices.ContainsFunc(all, func(m member) bool { return m.name == name })
	}
	if revision == modernRevision &&
		(!has("resultType") || !strings.Contains(string(got),
			"io.modelcontextprotocol/serverInfo")) {
		t.Errorf("%s: no result of 2026-07-28: %s", what, got)
	}
	strip := func(list []member) []member {
		return slices.DeleteFunc(list,
			func(m member) bool { return slices.Contains(modernMembers, m.name) })
	}
	if revision == legacyRevision {
		for _, name := range modernMembers {
			if has(name) {
				t.Errorf("%s: a legacy client gets %s: %s", what, name, got)
			}
		}
	}
	gotMembers, wantMembers := strip(all), strip(membersOf(t, want))
	if !slices.Equal(gotMembers, wantMembers) {
		t.Errorf("%s differs:\nbackend: %q\ngateway: %q", what, wantMembers, gotMembers)
	}
}

// forEachGenerationPair runs a test for clients of each generation with backends of each
// generation.
func forEachGenerationPair(t *testing.T, f func(t *testing.T, client, backend string)) {
	for _, client := range []string{legacyRevision, modernRevision} {
		for _, backend := range []string{legacyRevision, modernRevision} {
			t.Run(fmt.Sprintf("client %s, backend %s", client, backend), func(t *testing.T) {
				t.Parallel()
				f(t, client, backend)
			})
		}
	}
}

// Responses of the fidelity server are the same for all pairs: odd bytes, unknown members, large
// numbers. So are the requests that it receives.
func TestFidelity_AllGenerationPairs(t *testing.T) {
	t.Parallel()
	forEachGenerationPair(t, func(t *testing.T, client, backend string) {
		gw := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
			fidelityBackend(backend)).start()
		var c caller = modernCaller{gw, elicitationCapability}
		if client == legacyRevision {
			gw.initialize(legacyRevision)
			c = gw
		}
		for method, want := range map[string]struct{ params, result string }{
			"tools/list":     {`{}`, fidelityTools},
			"resources/list": {`{}`, fidelityResources},
			"resources/read": {`{"uri":"fidelity://big"}`, fidelityContents},
		} {
			checkFidelity(t, method, client, []byte("{"+want.result+"}"),
				c.call(method, want.params).Result)
		}

		const arguments = `{"n":9007199254740993,  "f":1.10,"e":1e400,"s":"\u00fc ü <&> \u2028"}`
		m := c.call("tools/call", `{"name":"echo","arguments":`+arguments+`,"x-unknown": 1.10}`)
		var result struct{ Content []struct{ Text string } }
		if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
			t.Fatalf("echo: %v: %s", err, m.Raw)
		}
		params := membersOf(t, []byte(result.Content[0].Text))
		params = slices.DeleteFunc(params, func(m member) bool { return m.name == "_meta" })
		if want := []member{{"name", `"echo"`}, {"arguments", arguments},
			{"x-unknown", "1.10"}}; !slices.Equal(params, want) {
			t.Errorf("the backend received %q, want %q", params, want)
		}
		checkFidelity(t, "echo", client,
			[]byte("{"+fidelityResult([]byte(result.Content[0].Text))+"}"), m.Result)
	})
}

// An elicitation during a call keeps its bytes on the way to the client, and the response keeps
// its bytes on the way back, for all pairs. Only the message gets a label with the backend's
// name.
func TestElicitation_AllGenerationPairs(t *testing.T) {
	t.Parallel()
	const response = `{"action":"accept","content":{"n":9007199254740993,"s":"\u00fc"},"x-unknown": [ 1.10 ]}`
	checkElicitation := func(t *testing.T, params []byte) {
		t.Helper()
		want := membersOf(t, []byte(fidelityElicitation))
		got := membersOf(t, params)
		for i := range got {
			if got[i].name == "message" {
				got[i].raw = strings.Replace(got[i].raw, `"[fidelity] `, `"`, 1)
			}
		}
		// The mode form is the default.
		got = slices.DeleteFunc(got,
			func(m member) bool { return m.name == "mode" && m.raw == `"form"` })
		if !slices.Equal(got, want) {
			t.Errorf("elicitation %q, want %q", got, want)
		}
	}
	forEachGenerationPair(t, func(t *testing.T, client, backend string) {
		gw := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
			fidelityBackend(backend)).start()
		const call = `{"name":"ask","arguments":{}}`
		var last message
		if client == legacyRevision {
			gw.sendRequest("1", "initialize",
				`{"protocolVersion":"`+legacyRevision+`","capabilities":`+elicitationCapability+
					`,"clientInfo":{"name":"raw","version":"1"}}`)
			gw.awaitResponse("1", waitTimeout)
			gw.notify("notifications/initialized", "")
			gw.call("tools/list", `{}`)
			gw.sendRequest("2", "tools/call", call)
			q := gw.await("elicitation", waitTimeout,
				func(m message) bool { return m.Method == "elicitation/create" })
			checkElicitation(t, q.Params)
			gw.send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + response + `}`)
			last = gw.awaitResponse("2", waitTimeout)
		} else {
			c := modernCaller{gw, elicitationCapability}
			c.call("tools/list", `{}`)
			first := c.call("tools/call", call)
			var inputRequired struct {
				ResultType    string
				InputRequests map[string]struct {
					Method string
					Params json.RawMessage
				}
				RequestState json.RawMessage
			}
			if err := json.Unmarshal(first.Result, &inputRequired); err != nil ||
				inputRequired.ResultType != "input_required" ||
				len(inputRequired.InputRequests) != 1 {
				t.Fatalf("ask: %v: %s", err, first.Raw)
			}
			for key, q := range inputRequired.InputRequests {
				if backend == modernRevision && key != "count" {
					t.Errorf("the key is %q, want count", key)
				}
				if q.Method != "elicitation/create" {
					t.Errorf("input request %s", q.Method)
				}
				checkElicitation(t, q.Params)
				quoted, _ := json.Marshal(key)
				last = c.call("tools/call",
					`{"name":"ask","arguments":{},"inputResponses":{`+string(quoted)+`:`+response+
						`},"requestState":`+string(inputRequired.RequestState)+`}`)
			}
		}
		checkFidelity(t, "ask", client, []byte("{"+fidelityResult([]byte(response))+"}"),
			last.Result)
	})
}

// Requests of both generations may come in any order on one connection: each gets a response of
// its generation.
func TestGenerations_MixedOnOneConnection(t *testing.T) {
	t.Parallel()
	type step struct{ name, revision string }
	discover, list, call := step{"discover", modernRevision}, step{"list", modernRevision},
		step{"call", modernRevision}
	initialize, listLegacy, callLegacy := step{"initialize", legacyRevision},
		step{"list", legacyRevision}, step{"call", legacyRevision}
	for name, order := range map[string][]step{
		"discover, initialize":       {discover, initialize, listLegacy, callLegacy},
		"initialize, discover, call": {initialize, discover, call, callLegacy, list, listLegacy},
		"call, initialize":           {call, initialize, callLegacy, call},
		"discover, call, initialize": {discover, list, call, initialize, listLegacy, callLegacy,
			call},
		"initialize only": {initialize, listLegacy, callLegacy},
		"call only":       {call},
		"discover twice":  {discover, discover},
	} {
		for _, revision := range []string{legacyRevision, modernRevision} {
			t.Run(name+"/backend "+revision, func(t *testing.T) {
				t.Parallel()
				gw := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
					fidelityBackend(revision)).start()
				modern := modernCaller{gw, `{}`}
				for i, s := range order {
					var c caller = gw
					if s.revision == modernRevision {
						c = modern
					}
					var m message
					want := "fidelity"
					switch s.name {
					case "discover":
						m, want = c.call("server/discover", `{}`),
							`"supportedVersions":["2026-07-28","2025-11-25"`
					case "initialize":
						m, want = gw.initialize(legacyRevision), `"protocolVersion":"2025-11-25"`
					case "list":
						m, want = c.call("tools/list", `{}`), `"name":"echo"`
					case "call":
						m, want = c.call("tools/call", `{"name":"echo","arguments":{"n":1}}`),
							`\"n\":1`
					}
					if !strings.Contains(string(m.Result), want) ||
						strings.Contains(string(m.Result),
							`"resultType"`) != (s.revision == modernRevision) {
						t.Errorf("step %d, %s of %s: %s", i+1, s.name, s.revision, m.Raw)
					}
				}
				if code := gw.finish(waitTimeout); code != 0 {
					t.Errorf("exit code %d", code)
				}
				gw.checkPure()
			})
		}
	}
}

// The order of the checks of requests over HTTP, with status and error code, and the request's
// id unchanged.
func TestModern_RejectedRequests(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
		fidelityBackend(modernRevision))
	url := s.serveURL()
	awaitReady(t, url)
	c := newRawModern(t, url, `{}`)
	body := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":9007199254740993,"method":"` + method + `","params":` +
			params + `}`
	}
	with := func(h http.Header, more ...string) http.Header {
		h = h.Clone()
		for i := 0; i < len(more); i += 2 {
			if more[i+1] == "" {
				h.Del(more[i])
			} else {
				h.Set(more[i], more[i+1])
			}
		}
		return h
	}
	echo := `{"name":"echo","arguments":{}}`
	std := headersFor("tools/call", echo)
	const withoutMeta = `{"name":"echo","arguments":{}}`
	for _, row := range []struct {
		what, body string
		header     http.Header
		status     int
		code       int
	}{
		{"valid", body("tools/call", withMeta(echo, `{}`)), std, 200, 0},
		{"no _meta", body("tools/call", withoutMeta), std, 400, -32602},
		{"no capabilities", body("tools/call",
			`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"echo"}`),
			std, 400, -32602},
		{"no version header", body("tools/call", withMeta(echo, `{}`)),
			with(std, "Mcp-Protocol-Version", ""), 400, -32020},
		{"wrong version header", body("tools/call", withMeta(echo, `{}`)),
			with(std, "Mcp-Protocol-Version", "2027-01-01"), 400, -32020},
		{"unknown version", body("tools/call",
			strings.Replace(withMeta(echo, `{}`), "2026-07-28", "2027-01-01", 1)),
			with(std, "Mcp-Protocol-Version", "2027-01-01"), 400, -32022},
		{"no method header", body("tools/call", withMeta(echo, `{}`)), with(std, "Mcp-Method", ""),
			400, -32020},
		{"wrong method header", body("tools/call", withMeta(echo, `{}`)),
			with(std, "Mcp-Method", "tools/list"), 400, -32020},
		{"no name header", body("tools/call", withMeta(echo, `{}`)), with(std, "Mcp-Name", ""), 400,
			-32020},
		{"wrong name header", body("tools/call", withMeta(echo, `{}`)),
			with(std, "Mcp-Name", "ask"), 400, -32020},
		{"unknown method", body("tools/burn", withMeta(`{}`, `{}`)), headersFor("tools/burn", `{}`),
			404, -32601},
		{"legacy method", body("ping", withMeta(`{}`, `{}`)), headersFor("ping", `{}`), 404,
			-32601},
		{"initialize", body("initialize", withMeta(`{}`, `{}`)), headersFor("initialize", `{}`),
			404, -32601},
		{"unknown tool", body("tools/call", withMeta(`{"name":"burn"}`, `{}`)),
			headersFor("tools/call", `{"name":"burn"}`), 200, -32602},
		{"encoded name", body("tools/call", withMeta(echo, `{}`)),
			with(std, "Mcp-Name", "=?base64?ZWNobw==?="), 200, 0},
		{"invalid encoding of name", body("tools/call", withMeta(echo, `{}`)),
			with(std, "Mcp-Name", "=?base64?ZWNobw?="), 400, -32020},
	} {
		stream := newRawStream(t, c.post(row.body, row.header))
		m := stream.awaitResponse("9007199254740993")
		if got := stream.response.StatusCode; got != row.status || m.code() != row.code {
			t.Errorf("%s: status %d, code %d, want %d and %d: %s", row.what, got, m.code(),
				row.status, row.code, m.Raw)
		}
		if session := stream.response.Header.Get("Mcp-Session-Id"); session != "" {
			t.Errorf("%s: unexpected session %s", row.what, session)
		}
		stream.close()
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Mcp-Protocol-Version", modernRevision)
		req.Header.Set("Accept", "text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, res.Status)
		}
	}
}

// The responses of the go-sdk's everything-server are the same for a client of either
// generation, with either form of the server behind the gateway.
func TestDifferential_AcrossGenerations(t *testing.T) {
	t.Parallel()
	for revision, form := range map[string]string{legacyRevision: "-stateless=false",
		modernRevision: "-stateless=true"} {
		server := serveEverything(t, form)
		s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}},
			backend{Name: "everything", URL: server})
		url := s.serveURL()
		awaitReady(t, url)
		dial := map[string]func(url string) caller{
			legacyRevision: func(url string) caller { return dialHTTP(t, url, legacyRevision) },
			modernRevision: func(url string) caller { return newRawModern(t, url, `{}`) },
		}
		for _, client := range []string{legacyRevision, modernRevision} {
			t.Run(fmt.Sprintf("client %s, backend %s", client, revision), func(t *testing.T) {
				compareThroughGateway(t, client, revision, dial[revision](server),
					dial[client](url))
			})
		}
	}
}

// compareThroughGateway compares a server with the gateway in front of it. If client and backend
// are legacy, there is no difference at all.
func compareThroughGateway(t *testing.T, client, backend string, direct, gw caller) {
	for method, name := range map[string]string{
		"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
		"resources/templates/list": "resourceTemplates",
	} {
		want, got := elements(t, direct, method, name), elements(t, gw, method, name)
		if len(want) == 0 {
			t.Errorf("%s: the server lists nothing", method)
		}
		checkSame(t, method, []byte(strings.Join(want, "\n")), []byte(strings.Join(got, "\n")))
	}
	for _, r := range []struct{ method, params string }{
		{"tools/call", `{"name":"test_simple_text","arguments":{}}`},
		{"tools/call", `{"name":"test_image_content","arguments":{}}`},
		{"tools/call", `{"name":"test_audio_content","arguments":{}}`},
		{"tools/call", `{"name":"test_embedded_resource","arguments":{}}`},
		{"tools/call", `{"name":"test_multiple_content_types","arguments":{}}`},
		{"tools/call", `{"name":"test_error_handling","arguments":{}}`},
		{"tools/call",
			`{"name":"json_schema_2020_12_tool","arguments":{"name":"\u00fc <&>","phone":"1","contactMethod":"phone"}}`},
		// Invalid arguments: an error of the server.
		{"tools/call", `{"name":"json_schema_2020_12_tool","arguments":{"unknown":1}}`},
		{"prompts/get", `{"name":"test_simple_prompt"}`},
		{"prompts/get",
			`{"name":"test_prompt_with_arguments","arguments":{"arg1":"<Zürich> & \u00fc","arg2":"2"}}`},
		{"prompts/get",
			`{"name":"test_prompt_with_embedded_resource","arguments":{"resourceUri":"test://x"}}`},
		{"prompts/get", `{"name":"test_prompt_with_image"}`},
		{"resources/read", `{"uri":"test://static-text"}`},
		{"resources/read", `{"uri":"test://static-binary"}`},
		{"resources/read", `{"uri":"test://template/123/data"}`},
		{"completion/complete",
			`{"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},"argument":{"name":"arg1","value":"p"}}`},
	} {
		what := r.method + " " + r.params
		want, got := direct.call(r.method, r.params), gw.call(r.method, r.params)
		checkSame(t, what+": error", want.Error, got.Error)
		switch {
		case client == legacyRevision && backend == legacyRevision:
			checkSame(t, what+": result", want.Result, got.Result)
		case want.Result != nil:
			checkFidelity(t, what, client, want.Result, got.Result)
		}
	}
	// A missing resource has its own error code in the legacy revisions, which the go-sdk does
	// not use.
	const missing = `{"uri":"test://template"}`
	want := direct.call("resources/read", missing)
	if client == legacyRevision && backend == modernRevision {
		want.Error = []byte(strings.Replace(string(want.Error), "-32602", "-32002", 1))
	}
	checkSame(t, "resources/read "+missing, want.Error, gw.call("resources/read", missing).Error)
}
