package httpserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	metaPrefix     = "io.modelcontextprotocol/"
	modernRevision = "2026-07-28"
)

// meta returns the client metadata of a request.
func meta(date string) string {
	return `"_meta":{"` + metaPrefix + `protocolVersion":"` + date + `","` + metaPrefix + `clientCapabilities":{}}`
}

// statelessRequest returns a correct modern request; params contains members of its params.
func statelessRequest(id, method, params string) testRequest {
	if params != "" {
		params = "," + params
	}
	return testRequest{body: requestJSON(id, method, "{"+meta(modernRevision)+params+"}"), header: map[string]string{
		"Mcp-Protocol-Version": modernRevision, "Mcp-Method": method,
	}}
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

// Each check of a stateless request, in order: status, id and code.
func TestStatelessChecks(t *testing.T) {
	h := newHarness(t, func(o *Options) {
		o.Loopback, o.Tokens = true, []string{"secret"}
		o.ValidateHeaders = func(m wire.Message, get func(string) []string) *wire.Error {
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
	with := func(body string, header ...string) testRequest { return testRequest{body: body}.withHeader(header...) }
	const version = "Mcp-Protocol-Version"
	bare := requestJSON("5", "echo", "{}")
	other := func(date string) string { return requestJSON("5", "echo", "{"+meta(date)+"}") }
	session, _ := h.initialize("2025-11-25", map[string]string{"Authorization": "Bearer secret"})
	in := func(tr testRequest) testRequest { tr.session = session; return tr }
	verb := func(verb string, tr testRequest) testRequest { tr.method = verb; return tr }
	for name, row := range map[string]struct {
		testRequest
		status int
		id     string
		code   int // 0: no error
	}{
		"good":             {good, 200, "", 0},
		"session ignored":  {in(good), 200, "", 0},
		"unknown session":  {testRequest{body: good.body, header: good.header, session: "x"}, 200, "", 0},
		"seen ignored":     {good.withHeader("Last-Event-ID", "7-7"), 200, "", 0},
		"GET":              {verb("GET", testRequest{}.withRevision(modernRevision)), 405, "null", wire.CodeInvalidRequest},
		"GET, session":     {verb("GET", in(testRequest{}.withRevision(modernRevision))), 405, "null", wire.CodeInvalidRequest},
		"GET, newer":       {verb("GET", testRequest{}.withRevision("2027-01-01")), 405, "null", wire.CodeInvalidRequest},
		"DELETE":           {verb("DELETE", testRequest{}.withRevision(modernRevision)), 405, "null", wire.CodeInvalidRequest},
		"DELETE, session":  {verb("DELETE", in(testRequest{}.withRevision(modernRevision))), 405, "null", wire.CodeInvalidRequest},
		"PUT":              {verb("PUT", good), 405, "null", wire.CodeInvalidRequest},
		"host":             {testRequest{host: "evil.example", body: good.body, header: good.header}, 403, "null", wire.CodeInvalidRequest},
		"origin":           {good.withHeader("Origin", "http://evil.example"), 403, "null", wire.CodeInvalidRequest},
		"token":            {good.withHeader("Authorization", "Bearer guess"), 401, "null", wire.CodeInvalidRequest},
		"no token":         {good.withHeader("Authorization", "-"), 401, "null", wire.CodeInvalidRequest},
		"type":             {good.withHeader("Content-Type", "text/plain"), 415, "null", wire.CodeInvalidRequest},
		"accept json":      {good.withHeader("Accept", "application/json"), 200, "", 0},
		"accept neither":   {good.withHeader("Accept", "text/html"), 406, "null", wire.CodeInvalidRequest},
		"size":             {statelessRequest("5", "echo", `"x":"`+strings.Repeat("x", 1<<20)+`"`), 413, "null", wire.CodeInvalidRequest},
		"no JSON":          {with("{", version, modernRevision), 400, "null", wire.CodeParseError},
		"no message":       {with(`{"jsonrpc":"2.0","id":5}`, version, modernRevision), 400, "5", wire.CodeInvalidRequest},
		"response":         {with(resultJSON("5", "{}"), version, modernRevision), 400, "null", wire.CodeInvalidRequest},
		"response, newer":  {with(resultJSON("5", "{}"), version, "2027-01-01"), 400, "null", wire.CodeInvalidRequest},
		"batch":            {with("["+good.body+"]", version, modernRevision), 400, "null", wire.CodeInvalidRequest},
		"batch, session":   {in(testRequest{body: "[" + good.body + "]"}), 400, "null", wire.CodeInvalidRequest},
		"empty batch":      {with("[]", version, modernRevision), 400, "null", wire.CodeInvalidRequest},
		"note":             {with(`{"jsonrpc":"2.0","method":"x"}`, version, modernRevision), 202, "", 0},
		"note, newer":      {with(`{"jsonrpc":"2.0","method":"x"}`, version, "2027-01-01"), 202, "", 0},
		"note, cancels":    {with(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, version, modernRevision), 202, "", 0},
		"note says itself": {with(`{"jsonrpc":"2.0","method":"x","params":{` + meta(modernRevision) + `}}`), 202, "", 0},

		"no meta":             {with(bare, version, modernRevision), 400, "5", wire.CodeInvalidParams},
		"no meta, newer":      {with(bare, version, "2027-01-01"), 400, "5", wire.CodeInvalidParams},
		"no meta, session":    {in(with(bare, version, modernRevision)), 400, "5", wire.CodeInvalidParams},
		"no params":           {with(`{"jsonrpc":"2.0","id":5,"method":"echo"}`, version, modernRevision), 400, "5", wire.CodeInvalidParams},
		"no version":          {with(requestJSON("5", "echo", `{"_meta":{"`+metaPrefix+`clientCapabilities":{}}}`), version, modernRevision), 400, "5", wire.CodeInvalidParams},
		"version null":        {with(requestJSON("5", "echo", `{"_meta":{"`+metaPrefix+`protocolVersion":null,"`+metaPrefix+`clientCapabilities":{}}}`), version, modernRevision), 400, "5", wire.CodeInvalidParams},
		"no capabilities":     {with(requestJSON("5", "echo", `{"_meta":{"`+metaPrefix+`protocolVersion":"`+modernRevision+`"}}`), version, modernRevision), 400, "5", wire.CodeInvalidParams},
		"capabilities, older": {with(requestJSON("5", "echo", `{"_meta":{"`+metaPrefix+`protocolVersion":"2025-11-25"}}`), version, modernRevision), 400, "5", wire.CodeInvalidParams},
		"bad level":           {with(requestJSON("5", "echo", `{"_meta":{"`+metaPrefix+`protocolVersion":"`+modernRevision+`","`+metaPrefix+`clientCapabilities":{},"`+metaPrefix+`logLevel":"loud"}}`), version, modernRevision), 400, "5", wire.CodeInvalidParams},
		"no meta, initialize": {with(initializeRequest("2025-11-25"), version, modernRevision), 400, `"init"`, protocol.CodeHeaderMismatch},
		"newer, initialize":   {with(initializeRequest("2027-01-01"), version, "2027-01-01"), 400, `"init"`, protocol.CodeHeaderMismatch},

		"no header":                {good.withHeader(version, "-"), 400, "5", protocol.CodeHeaderMismatch},
		"no header, session":       {in(good.withHeader(version, "-")), 400, "5", protocol.CodeHeaderMismatch},
		"header of a session":      {in(good.withHeader(version, "2025-11-25")), 400, "5", protocol.CodeHeaderMismatch},
		"header of a newer one":    {good.withHeader(version, "2027-01-01"), 400, "5", protocol.CodeHeaderMismatch},
		"header before version":    {with(other("2027-01-01"), version, modernRevision), 400, "5", protocol.CodeHeaderMismatch},
		"meta of a session":        {with(other("2025-11-25"), version, modernRevision), 400, "5", protocol.CodeHeaderMismatch},
		"header spaced":            {good.withHeader(version, " "+modernRevision+"\t"), 200, "", 0},
		"newer":                    {with(other("2027-01-01"), version, "2027-01-01"), 400, "5", protocol.CodeUnsupportedVersion},
		"newer, session":           {in(with(other("2027-01-01"), version, "2027-01-01")), 400, "5", protocol.CodeUnsupportedVersion},
		"garbage":                  {with(other("v999.0.0"), version, "v999.0.0"), 400, "5", protocol.CodeUnsupportedVersion},
		"older garbage":            {with(other("1900-01-01"), version, "1900-01-01"), 400, "5", protocol.CodeUnsupportedVersion},
		"garbage, initialize":      {with(requestJSON("5", "initialize", "{"+meta("v9")+"}"), version, "v9"), 400, "5", protocol.CodeUnsupportedVersion},
		"meta of a session, alone": {with(other("2025-11-25")), 400, "5", wire.CodeNotInitialized},

		"initialize":           {statelessRequest("5", "initialize", ""), 404, "5", wire.CodeMethodNotFound},
		"ping":                 {statelessRequest(`"five"`, "ping", ""), 404, `"five"`, wire.CodeMethodNotFound},
		"ping, session":        {in(statelessRequest("5", "ping", "")), 404, "5", wire.CodeMethodNotFound},
		"method header":        {good.withHeader("Mcp-Method", "Echo"), 400, "5", protocol.CodeHeaderMismatch},
		"no method header":     {good.withHeader("Mcp-Method", "-"), 400, "5", protocol.CodeHeaderMismatch},
		"unknown tool":         {statelessRequest("5", "echo", `"name":"unknown"`), 200, "5", wire.CodeInvalidParams},
		"unknown further in":   {statelessRequest("5", "what", ""), 404, "5", wire.CodeMethodNotFound},
		"id null":              {statelessRequest("null", "what", ""), 404, "null", wire.CodeMethodNotFound},
		"probe without header": {with(requestJSON("5", "server/discover", "{}")), 404, "5", wire.CodeMethodNotFound},
		"probe of a newer one": {with(requestJSON("5", "server/discover", "{}"), version, "2027-01-01"), 400, "5", wire.CodeInvalidParams},
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
			if allow := res.Header.Get("Allow"); row.status == 405 && allow != "POST" || row.status != 405 && allow != "" {
				t.Errorf("Allow: %s", allow)
			}
			if res.Header.Get("Mcp-Session-Id") != "" {
				t.Error("there is a session")
			}
		})
	}
}

// A header that is sent twice names one revision, or none.
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
	if a, b, c := send(modernRevision, modernRevision), send(modernRevision, "2025-11-25"), send("2025-11-25", modernRevision); a != 200 || b != 400 || c != 400 {
		t.Errorf("%d %d %d", a, b, c)
	}
}

// Both generations work at the same URL for the same client, independently.
func TestBothGenerationsAtOneURL(t *testing.T) {
	// In a bubble, so that no response counts as late on a slow machine
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		// Before any session
		h.want(statelessRequest("1", "echo", ""), 200, resultJSON("1", "{"+meta(modernRevision)+"}"))
		if handler := <-h.handlers; !handler.Stateless {
			t.Error("a request is in a session")
		}
		key, handler := h.initialize("2025-11-25", nil)
		if handler.Stateless {
			t.Error("a session is stateless")
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for n := range 20 {
					id := fmt.Sprint(i*1000 + n)
					h.want(testRequest{session: key, body: requestJSON(id, "echo", `{"a":1}`)}, 200, resultJSON(id, `{"a":1}`))
					h.want(statelessRequest(id, "echo", `"b":2`), 200, resultJSON(id, "{"+meta(modernRevision)+`,"b":2}`))
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
			if !handler.Stateless || handler.Principal != "" || len(handler.ID) != 32 {
				t.Errorf("%+v", handler.SessionInfo)
			}
		}
		if len(names) != 10 {
			t.Errorf("%d names of 10 visits", len(names))
		}
	})
}

// A request without a session has the same size limit as one in a session.
func TestLongRequestWithoutSession(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.MessageLimit = 4 << 20 })
	text := `"x":"` + strings.Repeat("x", 3<<20) + `"`
	h.want(statelessRequest("1", "echo", text), 200, resultJSON("1", "{"+meta(modernRevision)+","+text+"}"))
	h.wantError(testRequest{body: requestJSON("1", "echo", "{"+text+"}")}, 413, "null", wire.CodeInvalidRequest)
}

func TestPrincipals(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Tokens = []string{"alpha", "beta"} })
	for token, want := range map[string]string{"alpha": "1", "beta": "2"} {
		h.want(statelessRequest("1", "echo", "").withHeader("Authorization", "Bearer "+token), 200, "*")
		if handler := <-h.handlers; handler.Principal != want {
			t.Errorf("%s is %q", token, handler.Principal)
		}
		if _, handler := h.initialize("2025-11-25", map[string]string{"Authorization": "Bearer " + token}); handler.Principal != want {
			t.Errorf("%s is %q in a session", token, handler.Principal)
		}
	}
}

// Browser pages may send the headers that repeat the tool arguments, whatever their names are.
func TestCORSForModernClients(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Loopback, o.Origins = true, []string{"http://localhost:6274"} })
	ask := func(names string) string {
		t.Helper()
		res := h.want(testRequest{method: "OPTIONS", header: map[string]string{
			"Origin": "http://localhost:6274", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": names,
		}}, 204, "")
		return res.Header.Get("Access-Control-Allow-Headers")
	}
	got := ask("content-type, mcp-param-region,Mcp-Param-Some-Id, x-evil, xmcp-param-a")
	if !strings.HasSuffix(got, "Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Param-Region, Mcp-Param-Some-Id") || strings.Contains(got, "vil") {
		t.Errorf("%s", got)
	}
	if n := strings.Count(ask(strings.Repeat("mcp-param-a,", 1000)), "Mcp-Param-A"); n != maxParamHeaders {
		t.Errorf("%d headers", n)
	}
}
