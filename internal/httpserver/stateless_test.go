package httpserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	metaPrefix     = "io.modelcontextprotocol/"
	modernRevision = "2026-07-28"
)

// meta returns the client metadata of a request.
func meta(date string) string {
	return `"_meta":{"` + metaPrefix + `protocolVersion":"` + date + `",` +
		`"` + metaPrefix + `clientCapabilities":{}}`
}

// statelessRequest returns a correct modern request; params contains members of its params.
func statelessRequest(id, method, params string) testRequest {
	if params != "" {
		params = "," + params
	}
	return post("", requestJSON(id, method, "{"+meta(modernRevision)+params+"}")).
		withHeader("Mcp-Protocol-Version", modernRevision, "Mcp-Method", method)
}

func (tr testRequest) withHeader(header ...string) testRequest {
	all := map[string]string{}
	for name, value := range tr.header {
		all[name] = value
	}
	for i := 0; i < len(header); i += 2 {
		all[header[i]] = header[i+1]
	}
	tr.header = all
	return tr
}

// withRevision changes the revision in the header only.
func (tr testRequest) withRevision(date string) testRequest {
	return tr.withHeader("Mcp-Protocol-Version", date)
}

// The status, id and code of the response for each check of a stateless request.
func TestStatelessChecks(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Loopback, o.Tokens = true, bearerTokens("secret")
		o.ValidateHeaders = func(
			_ *principal.Principal, m wire.Message, get func(string) []string,
		) *wire.Error {
			switch {
			case m.Method() == "initialize" || m.Method() == "ping":
				return wire.Errorf(wire.CodeMethodNotFound, "Method not found")
			case strings.Join(get("mcp-method"), "") != m.Method():
				return wire.Errorf(protocol.CodeHeaderMismatch, "Header mismatch")
			case m.Name() == "unknown":
				return wire.Errorf(wire.CodeInvalidParams, "Unknown tool")
			}
			return nil
		}
	})
	good := statelessRequest("5", "echo", "")
	named := func(date, body string) testRequest { return post("", body).withRevision(date) }
	modern := func(body string) testRequest { return named(modernRevision, body) }
	const version = "Mcp-Protocol-Version"
	const (
		invalid     = wire.CodeInvalidRequest
		params      = wire.CodeInvalidParams
		method      = wire.CodeMethodNotFound
		mismatch    = protocol.CodeHeaderMismatch
		unsupported = protocol.CodeUnsupportedVersion
	)
	bare := requestJSON("5", "echo", "{}")
	other := func(date string) string { return requestJSON("5", "echo", "{"+meta(date)+"}") }
	session, _ := h.initialize("2025-11-25", map[string]string{"Authorization": "Bearer secret"})
	in := func(tr testRequest) testRequest { tr.session = session; return tr }
	with := func(method string, tr testRequest) testRequest { tr.method = method; return tr }
	withMeta := func(members string) string {
		return requestJSON("5", "echo",
			`{"_meta":{`+strings.ReplaceAll(members, "P/", metaPrefix)+`}}`)
	}
	for name, row := range map[string]struct {
		testRequest
		status int
		id     string
		code   int // 0 = no error
	}{
		"good":            {good, 200, "", 0},
		"session ignored": {in(good), 200, "", 0},
		"unknown session": {testRequest{body: good.body, header: good.header, session: "x"},
			200, "", 0},
		"last event ignored": {good.withHeader("Last-Event-ID", "7-7"), 200, "", 0},
		"GET": {with("GET", testRequest{}.withRevision(modernRevision)), 405,
			"null", invalid},
		"GET, session": {with("GET", in(testRequest{}.withRevision(modernRevision))), 405,
			"null", invalid},
		"GET, newer": {with("GET", testRequest{}.withRevision("2027-01-01")), 405, "null",
			invalid},
		"DELETE": {with("DELETE", testRequest{}.withRevision(modernRevision)), 405,
			"null", invalid},
		"DELETE, session": {with("DELETE", in(testRequest{}.withRevision(modernRevision))), 405,
			"null", invalid},
		"PUT": {with("PUT", good), 405, "null", invalid},
		"host": {testRequest{host: "evil.example", body: good.body,
			header: good.header}, 403, "null", invalid},
		"origin": {good.withHeader("Origin", "http://evil.example"), 403, "null",
			invalid},
		"token": {good.withHeader("Authorization", "Bearer guess"), 401, "null",
			invalid},
		"no token":       {good.withHeader("Authorization", "-"), 401, "null", invalid},
		"type":           {good.withHeader("Content-Type", "text/plain"), 415, "null", invalid},
		"accept json":    {good.withHeader("Accept", "application/json"), 200, "", 0},
		"accept neither": {good.withHeader("Accept", "text/html"), 406, "null", invalid},
		"size": {statelessRequest("5", "echo",
			`"x":"`+strings.Repeat("x", 1<<20)+`"`), 413, "null", invalid},
		"not JSON":        {modern("{"), 400, "null", wire.CodeParseError},
		"not a message":   {modern(`{"jsonrpc":"2.0","id":5}`), 400, "5", invalid},
		"response":        {modern(resultJSON("5", "{}")), 400, "null", invalid},
		"response, newer": {named("2027-01-01", resultJSON("5", "{}")), 400, "null", invalid},
		"batch":           {modern("[" + good.body + "]"), 400, "null", invalid},
		"batch, session":  {in(testRequest{body: "[" + good.body + "]"}), 400, "null", invalid},
		"empty batch":     {modern("[]"), 400, "null", invalid},
		"note":            {modern(`{"jsonrpc":"2.0","method":"x"}`), 202, "", 0},
		"note, newer":     {named("2027-01-01", `{"jsonrpc":"2.0","method":"x"}`), 202, "", 0},
		"note, cancels":   {modern(cancelJSON("5")), 202, "", 0},
		"note, modern _meta": {post("",
			`{"jsonrpc":"2.0","method":"x","params":{`+meta(modernRevision)+`}}`), 202, "", 0},

		"no meta":          {modern(bare), 400, "5", params},
		"no meta, newer":   {named("2027-01-01", bare), 400, "5", params},
		"no meta, session": {in(modern(bare)), 400, "5", params},
		"no params": {modern(`{"jsonrpc":"2.0","id":5,"method":"echo"}`), 400, "5",
			params},
		"no version": {modern(withMeta(`"P/clientCapabilities":{}`)), 400, "5", params},
		"version is null": {modern(withMeta(`"P/protocolVersion":null,"P/clientCapabilities":{}`)),
			400, "5", params},
		"no capabilities": {modern(withMeta(`"P/protocolVersion":"2026-07-28"`)), 400, "5",
			params},
		"capabilities, older": {modern(withMeta(`"P/protocolVersion":"2025-11-25"`)), 400, "5",
			params},
		"bad level": {modern(
			withMeta(`"P/protocolVersion":"2026-07-28","P/clientCapabilities":{},` +
				`"P/logLevel":"loud"`)), 400, "5", params},
		"no meta, initialize": {modern(initializeRequest("2025-11-25")), 400, `"init"`, mismatch},
		"newer, initialize": {named("2027-01-01", initializeRequest("2027-01-01")), 400,
			`"init"`, mismatch},

		"no header":             {good.withHeader(version, "-"), 400, "5", mismatch},
		"no header, session":    {in(good.withHeader(version, "-")), 400, "5", mismatch},
		"header of a session":   {in(good.withHeader(version, "2025-11-25")), 400, "5", mismatch},
		"newer header":          {good.withHeader(version, "2027-01-01"), 400, "5", mismatch},
		"header before version": {modern(other("2027-01-01")), 400, "5", mismatch},
		"meta of a session":     {modern(other("2025-11-25")), 400, "5", mismatch},
		"header spaced":         {good.withHeader(version, " "+modernRevision+"\t"), 200, "", 0},
		"newer":                 {named("2027-01-01", other("2027-01-01")), 400, "5", unsupported},
		"newer, session": {in(named("2027-01-01", other("2027-01-01"))), 400, "5",
			unsupported},
		"garbage":       {named("v999.0.0", other("v999.0.0")), 400, "5", unsupported},
		"older garbage": {named("1900-01-01", other("1900-01-01")), 400, "5", unsupported},
		"garbage, initialize": {named("v9", requestJSON("5", "initialize", "{"+meta("v9")+"}")),
			400, "5", unsupported},
		"meta of a session only": {post("", other("2025-11-25")), 400, "5",
			wire.CodeNotInitialized},

		"initialize":       {statelessRequest("5", "initialize", ""), 404, "5", method},
		"ping":             {statelessRequest(`"five"`, "ping", ""), 404, `"five"`, method},
		"ping, session":    {in(statelessRequest("5", "ping", "")), 404, "5", method},
		"method header":    {good.withHeader("Mcp-Method", "Echo"), 400, "5", mismatch},
		"no method header": {good.withHeader("Mcp-Method", "-"), 400, "5", mismatch},
		"unknown tool": {statelessRequest("5", "echo", `"name":"unknown"`), 200, "5",
			params},
		"unknown method": {statelessRequest("5", "what", ""), 404, "5", method},
		"id null":        {statelessRequest("null", "what", ""), 404, "null", method},
		"probe without header": {post("", requestJSON("5", "server/discover", "{}")), 404, "5",
			method},
		"newer probe": {named("2027-01-01", requestJSON("5", "server/discover", "{}")),
			400, "5", params},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.T = t
			if row.header["Authorization"] == "" {
				row.testRequest = row.withHeader("Authorization", "Bearer secret")
			}
			var res *http.Response
			if row.code == 0 {
				res = h.want(row.testRequest, row.status, "*")
			} else {
				res = h.wantError(row.testRequest, row.status, row.id, row.code)
			}
			allow := res.Header.Get("Allow")
			if row.status == 405 && allow != "POST" || row.status != 405 && allow != "" {
				t.Errorf("Allow: %s", allow)
			}
			if res.Header.Get("Mcp-Session-Id") != "" {
				t.Error("a session was opened")
			}
		})
	}
}

// A header that is sent twice specifies one revision if both values are equal, and otherwise none.
func TestRepeatedVersionHeader(t *testing.T) {
	h := newHarness(t, nil)
	send := func(dates ...string) int {
		req := h.newRequest(statelessRequest("5", "echo", ""))
		req.Header["Mcp-Protocol-Version"] = dates
		res, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if a, b, c := send(modernRevision, modernRevision), send(modernRevision,
		"2025-11-25"), send("2025-11-25", modernRevision); a != 200 || b != 400 || c != 400 {
		t.Errorf("%d %d %d", a, b, c)
	}
}

// Both generations work at the same URL for the same client, independently.
func TestBothGenerationsAtOneURL(t *testing.T) {
	// The test runs in a bubble, so that no response counts as late on a slow machine.
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		// Before any session.
		h.want(statelessRequest("1", "echo", ""), 200,
			resultJSON("1", "{"+meta(modernRevision)+"}"))
		if handler := <-h.handlers; !handler.stateless {
			t.Error("a request was passed to a session")
		}
		key, handler := h.initialize("2025-11-25", nil)
		if handler.stateless {
			t.Error("a session was passed as a request")
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for n := range 20 {
					id := fmt.Sprint(i*1000 + n)
					h.want(post(key, requestJSON(id, "echo", `{"a":1}`)), 200,
						resultJSON(id, `{"a":1}`))
					h.want(statelessRequest(id, "echo", `"b":2`), 200,
						resultJSON(id, "{"+meta(modernRevision)+`,"b":2}`))
				}
			})
		}
		all.Wait()
		h.want(testRequest{session: key, method: "DELETE"}, 204, "")
		h.want(statelessRequest("1", "echo", ""), 200, "*")
	})
}

// Many requests with the same id can be in flight, independently.
func TestStatelessRequestsAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { h.want(statelessRequest("1", "hold", ""), 200, resultJSON("1", "{}")) })
		}
		for range 10 {
			r := <-h.heldRequests
			all.Go(func() { r.Reply([]byte("{}")) })
		}
		all.Wait()
		names := make(map[string]bool)
		for range 10 {
			handler := <-h.handlers
			names[handler.ID] = true
			if !handler.stateless || handler.Principal != nil || len(handler.ID) != 32 {
				t.Errorf("%+v", handler.SessionInfo)
			}
		}
		if len(names) != 10 {
			t.Errorf("%d ids of 10 stateless exchanges", len(names))
		}
	})
}

// A request without a session has the same size limit as one in a session.
func TestLongRequestWithoutSession(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.MessageLimit = 4 << 20 })
	text := `"x":"` + strings.Repeat("x", 3<<20) + `"`
	h.want(statelessRequest("1", "echo", text), 200,
		resultJSON("1", "{"+meta(modernRevision)+","+text+"}"))
	h.wantError(testRequest{body: requestJSON("1", "echo", "{"+text+"}")}, 413, "null",
		wire.CodeInvalidRequest)
}

func TestPrincipals(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Tokens = bearerTokens("alpha", "beta") })
	for token, want := range map[string]string{"alpha": "1", "beta": "2"} {
		h.want(statelessRequest("1", "echo", "").withHeader("Authorization", "Bearer "+token), 200,
			"*")
		if handler := <-h.handlers; handler.Principal.Name() != want {
			t.Errorf("token %s: principal %q", token, handler.Principal.Name())
		}
		if _, handler := h.initialize("2025-11-25",
			map[string]string{"Authorization": "Bearer " + token}); handler.Principal.Name() != want {
			t.Errorf("token %s: principal %q in a session", token,
				handler.Principal.Name())
		}
	}
}

// Browser pages may send the headers that repeat tool arguments, regardless of the names of the
// headers.
func TestCORSForModernClients(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Loopback, o.Origins = true, []string{"http://localhost:6274"}
	})
	ask := func(names string) string {
		t.Helper()
		res := h.want(testRequest{method: "OPTIONS", header: map[string]string{
			"Origin": "http://localhost:6274", "Access-Control-Request-Method": "POST",
			"Access-Control-Request-Headers": names,
		}}, 204, "")
		return res.Header.Get("Access-Control-Allow-Headers")
	}
	got := ask("content-type, mcp-param-region,Mcp-Param-Some-Id, x-evil, xmcp-param-a")
	if !strings.HasSuffix(got,
		"Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Param-Region, Mcp-Param-Some-Id") || strings.Contains(got, "vil") {
		t.Errorf("%s", got)
	}
	if n := strings.Count(ask(strings.Repeat("mcp-param-a,", 1000)),
		"Mcp-Param-A"); n != maxParamHeaders {
		t.Errorf("%d headers", n)
	}
}
