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

const eliciting = `{"elicitation":{"form":{}}}`

// ofEra is what the stateless era adds to a result, and the session era does not have.
var ofEra = []string{"resultType", "ttlMs", "cacheScope", "_meta"}

// checkFidelity compares a result through the gateway with the backend's own, member by member, byte for byte. Only
// what the client's era adds may be more, and it has to be there; only what it does not have may be less.
func checkFidelity(t testing.TB, what, era string, want, got []byte) {
	t.Helper()
	if got == nil {
		t.Errorf("%s: no result", what)
		return
	}
	all := membersOf(t, got)
	has := func(name string) bool { return slices.ContainsFunc(all, func(m member) bool { return m.name == name }) }
	if era == statelessEra && (!has("resultType") || !strings.Contains(string(got), "io.modelcontextprotocol/serverInfo")) {
		t.Errorf("%s: no result of 2026-07-28: %s", what, got)
	}
	strip := func(list []member) []member {
		return slices.DeleteFunc(list, func(m member) bool { return slices.Contains(ofEra, m.name) })
	}
	if era == sessionEra {
		for _, name := range ofEra {
			if has(name) {
				t.Errorf("%s: a session is told %s: %s", what, name, got)
			}
		}
	}
	rest, own := strip(all), strip(membersOf(t, want))
	if !slices.Equal(rest, own) {
		t.Errorf("%s differs:\nbackend: %q\ngateway: %q", what, own, rest)
	}
}

// eachCell runs a test for a client of either era in front of a backend of either era.
func eachCell(t *testing.T, f func(t *testing.T, client, backend string)) {
	for _, client := range []string{sessionEra, statelessEra} {
		for _, backend := range []string{sessionEra, statelessEra} {
			t.Run(fmt.Sprintf("client %s, backend %s", client, backend), func(t *testing.T) {
				t.Parallel()
				f(t, client, backend)
			})
		}
	}
}

// What the twin says is the same in every cell: odd bytes, unknown members, large numbers. And what it is told is, too.
func TestFidelityInAllCells(t *testing.T) {
	t.Parallel()
	eachCell(t, func(t *testing.T, client, backend string) {
		gw := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, twin(backend)).start()
		var c caller = stampedCaller{gw, eliciting}
		if client == sessionEra {
			gw.greet(sessionEra)
			c = gw
		}
		for method, want := range map[string]struct{ params, result string }{
			"tools/list":     {`{}`, twinTools},
			"resources/list": {`{}`, twinResources},
			"resources/read": {`{"uri":"twin://big"}`, twinContents},
		} {
			checkFidelity(t, method, client, []byte("{"+want.result+"}"), c.call(method, want.params).Result)
		}

		const arguments = `{"n":9007199254740993,  "f":1.10,"e":1e400,"s":"\u00fc ü <&> \u2028"}`
		m := c.call("tools/call", `{"name":"echo","arguments":`+arguments+`,"x-unknown": 1.10}`)
		var result struct{ Content []struct{ Text string } }
		if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Content) != 1 {
			t.Fatalf("echo: %v: %s", err, m.Raw)
		}
		told := membersOf(t, []byte(result.Content[0].Text))
		told = slices.DeleteFunc(told, func(m member) bool { return m.name == "_meta" })
		if want := []member{{"name", `"echo"`}, {"arguments", arguments}, {"x-unknown", "1.10"}}; !slices.Equal(told, want) {
			t.Errorf("the backend was told %q, want %q", told, want)
		}
		checkFidelity(t, "echo", client, []byte("{"+twinText([]byte(result.Content[0].Text))+"}"), m.Result)
	})
}

// A question in mid-call keeps its bytes on the way to the client, the answer its bytes on the way back, in every cell.
// The message alone says whose question it is.
func TestQuestionsInAllCells(t *testing.T) {
	t.Parallel()
	const answer = `{"action":"accept","content":{"n":9007199254740993,"s":"\u00fc"},"x-unknown": [ 1.10 ]}`
	checkQuestion := func(t *testing.T, params []byte) {
		t.Helper()
		want := membersOf(t, []byte(twinQuestion))
		got := membersOf(t, params)
		for i := range got {
			if got[i].name == "message" {
				got[i].raw = strings.Replace(got[i].raw, `"[twin] `, `"`, 1)
			}
		}
		got = slices.DeleteFunc(got, func(m member) bool { return m.name == "mode" && m.raw == `"form"` }) // what it is anyway
		if !slices.Equal(got, want) {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
	eachCell(t, func(t *testing.T, client, backend string) {
		gw := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, twin(backend)).start()
		const call = `{"name":"ask","arguments":{}}`
		var last message
		if client == sessionEra {
			gw.ask("1", "initialize", `{"protocolVersion":"`+sessionEra+`","capabilities":`+eliciting+`,"clientInfo":{"name":"raw","version":"1"}}`)
			gw.answer("1", patience)
			gw.notify("notifications/initialized", "")
			gw.call("tools/list", `{}`)
			gw.ask("2", "tools/call", call)
			q := gw.await("a question", patience, func(m message) bool { return m.Method == "elicitation/create" })
			checkQuestion(t, q.Params)
			gw.send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + answer + `}`)
			last = gw.answer("2", patience)
		} else {
			c := stampedCaller{gw, eliciting}
			c.call("tools/list", `{}`)
			asked := c.call("tools/call", call)
			var round struct {
				ResultType    string
				InputRequests map[string]struct {
					Method string
					Params json.RawMessage
				}
				RequestState json.RawMessage
			}
			if err := json.Unmarshal(asked.Result, &round); err != nil || round.ResultType != "input_required" || len(round.InputRequests) != 1 {
				t.Fatalf("ask: %v: %s", err, asked.Raw)
			}
			for key, q := range round.InputRequests {
				if backend == statelessEra && key != "count" {
					t.Errorf("the key is %q, the backend's is count", key)
				}
				if q.Method != "elicitation/create" {
					t.Errorf("asked %s", q.Method)
				}
				checkQuestion(t, q.Params)
				quoted, _ := json.Marshal(key)
				last = c.call("tools/call", `{"name":"ask","arguments":{},"inputResponses":{`+string(quoted)+`:`+answer+`},"requestState":`+string(round.RequestState)+`}`)
			}
		}
		checkFidelity(t, "ask", client, []byte("{"+twinText([]byte(answer))+"}"), last.Result)
	})
}

// Eras may come in any order on one pipe, and both at a time: each message is answered in its own.
func TestErasOnOnePipe(t *testing.T) {
	t.Parallel()
	type step struct{ name, era string }
	discover, list, call := step{"discover", statelessEra}, step{"list", statelessEra}, step{"call", statelessEra}
	initialize, listOld, callOld := step{"initialize", sessionEra}, step{"list", sessionEra}, step{"call", sessionEra}
	for name, order := range map[string][]step{
		"discover, initialize":        {discover, initialize, listOld, callOld},
		"initialize, discover, call":  {initialize, discover, call, callOld, list, listOld},
		"call, initialize":            {call, initialize, callOld, call},
		"discover, call, initialize":  {discover, list, call, initialize, listOld, callOld, call},
		"initialize and no more":      {initialize, listOld, callOld},
		"call and no more":            {call},
		"discover twice, never again": {discover, discover},
	} {
		for _, era := range []string{sessionEra, statelessEra} {
			t.Run(name+"/backend "+era, func(t *testing.T) {
				t.Parallel()
				gw := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, twin(era)).start()
				modern := stampedCaller{gw, `{}`}
				for i, s := range order {
					var c caller = gw
					if s.era == statelessEra {
						c = modern
					}
					var m message
					want := "twin"
					switch s.name {
					case "discover":
						m, want = c.call("server/discover", `{}`), `"supportedVersions":["2026-07-28","2025-11-25"`
					case "initialize":
						m, want = gw.greet(sessionEra), `"protocolVersion":"2025-11-25"`
					case "list":
						m, want = c.call("tools/list", `{}`), `"name":"echo"`
					case "call":
						m, want = c.call("tools/call", `{"name":"echo","arguments":{"n":1}}`), `\"n\":1`
					}
					if !strings.Contains(string(m.Result), want) || strings.Contains(string(m.Result), `"resultType"`) != (s.era == statelessEra) {
						t.Errorf("step %d, %s of %s: %s", i+1, s.name, s.era, m.Raw)
					}
				}
				if code := gw.finish(patience); code != 0 {
					t.Errorf("exit code %d", code)
				}
				gw.checkPure()
			})
		}
	}
}

// The order of what is refused over HTTP, with its status, byte for byte what was asked under which id.
func TestStatelessRefusals(t *testing.T) {
	t.Parallel()
	s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, twin(statelessEra))
	url := s.listen()
	awaitReady(t, url)
	c := newRawStateless(t, url, `{}`)
	body := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":9007199254740993,"method":"` + method + `","params":` + params + `}`
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
	std := headersOf("tools/call", echo)
	const unstamped = `{"name":"echo","arguments":{}}`
	for _, row := range []struct {
		what, body string
		header     http.Header
		status     int
		code       int
	}{
		{"fine", body("tools/call", stamped(echo, `{}`)), std, 200, 0},
		{"no _meta", body("tools/call", unstamped), std, 400, -32602},
		{"no capabilities", body("tools/call", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"echo"}`), std, 400, -32602},
		{"no version header", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Protocol-Version", ""), 400, -32020},
		{"another version header", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Protocol-Version", "2027-01-01"), 400, -32020},
		{"a later version", body("tools/call", strings.Replace(stamped(echo, `{}`), "2026-07-28", "2027-01-01", 1)), with(std, "Mcp-Protocol-Version", "2027-01-01"), 400, -32022},
		{"no method header", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Method", ""), 400, -32020},
		{"another method header", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Method", "tools/list"), 400, -32020},
		{"no name header", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Name", ""), 400, -32020},
		{"another name header", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Name", "ask"), 400, -32020},
		{"an unknown method", body("tools/burn", stamped(`{}`, `{}`)), headersOf("tools/burn", `{}`), 404, -32601},
		{"a method of sessions", body("ping", stamped(`{}`, `{}`)), headersOf("ping", `{}`), 404, -32601},
		{"initialize", body("initialize", stamped(`{}`, `{}`)), headersOf("initialize", `{}`), 404, -32601},
		{"an unknown tool", body("tools/call", stamped(`{"name":"burn"}`, `{}`)), headersOf("tools/call", `{"name":"burn"}`), 200, -32602},
		{"an encoded name", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Name", "=?base64?ZWNobw==?="), 200, 0},
		{"a name ill encoded", body("tools/call", stamped(echo, `{}`)), with(std, "Mcp-Name", "=?base64?ZWNobw?="), 400, -32020},
	} {
		stream := newRawStream(t, c.post(row.body, row.header))
		m := stream.answer("9007199254740993")
		if got := stream.response.StatusCode; got != row.status || m.code() != row.code {
			t.Errorf("%s: status %d, code %d, want %d and %d: %s", row.what, got, m.code(), row.status, row.code, m.Raw)
		}
		if session := stream.response.Header.Get("Mcp-Session-Id"); session != "" {
			t.Errorf("%s: a session, %s", row.what, session)
		}
		stream.close()
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Mcp-Protocol-Version", statelessEra)
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

// What the go-sdk's everything-server says is the same to a client of either era, whichever of its two forms is behind
// the gateway.
func TestDifferentialAcrossEras(t *testing.T) {
	t.Parallel()
	for era, form := range map[string]string{sessionEra: "-stateless=false", statelessEra: "-stateless=true"} {
		server := serveEverything(t, form)
		s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, backend{Name: "everything", URL: server})
		url := s.listen()
		awaitReady(t, url)
		dial := map[string]func(url string) caller{
			sessionEra:   func(url string) caller { return dialHTTP(t, url, sessionEra) },
			statelessEra: func(url string) caller { return newRawStateless(t, url, `{}`) },
		}
		for _, client := range []string{sessionEra, statelessEra} {
			t.Run(fmt.Sprintf("client %s, backend %s", client, era), func(t *testing.T) {
				compareEras(t, client, era, dial[era](server), dial[client](url))
			})
		}
	}
}

// compareEras compares a server with the gateway in front of it. Between two of the session era nothing differs at all.
func compareEras(t *testing.T, client, backend string, own, gw caller) {
	for method, name := range map[string]string{
		"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
	} {
		want, got := elements(t, own, method, name), elements(t, gw, method, name)
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
		{"tools/call", `{"name":"json_schema_2020_12_tool","arguments":{"name":"\u00fc <&>","phone":"1","contactMethod":"phone"}}`},
		{"tools/call", `{"name":"json_schema_2020_12_tool","arguments":{"unknown":1}}`}, // an error of the server's
		{"prompts/get", `{"name":"test_simple_prompt"}`},
		{"prompts/get", `{"name":"test_prompt_with_arguments","arguments":{"arg1":"<Zürich> & \u00fc","arg2":"2"}}`},
		{"prompts/get", `{"name":"test_prompt_with_embedded_resource","arguments":{"resourceUri":"test://x"}}`},
		{"prompts/get", `{"name":"test_prompt_with_image"}`},
		{"resources/read", `{"uri":"test://static-text"}`},
		{"resources/read", `{"uri":"test://static-binary"}`},
		{"resources/read", `{"uri":"test://template/123/data"}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"test_prompt_with_arguments"},"argument":{"name":"arg1","value":"p"}}`},
	} {
		what := r.method + " " + r.params
		want, got := own.call(r.method, r.params), gw.call(r.method, r.params)
		checkSame(t, what+": error", want.Error, got.Error)
		switch {
		case client == sessionEra && backend == sessionEra:
			checkSame(t, what+": result", want.Result, got.Result)
		case want.Result != nil:
			checkFidelity(t, what, client, want.Result, got.Result)
		}
	}
	// A resource that is not there has a code of its own in the session era, which go-sdk does not use itself.
	const missing = `{"uri":"test://template"}`
	want := own.call("resources/read", missing)
	if client == sessionEra && backend == statelessEra {
		want.Error = []byte(strings.Replace(string(want.Error), "-32602", "-32002", 1))
	}
	checkSame(t, "resources/read "+missing, want.Error, gw.call("resources/read", missing).Error)
}
