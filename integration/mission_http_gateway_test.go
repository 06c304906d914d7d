//go:build unix

package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestMission_OverHTTP has the cases of four protocol engines that the gateway was modelled on
// (A: HTTP with sessions; B: JSON-RPC; C: the gateway's core; D: the handler), for a client over
// HTTP. The cases over stdio are Mission_*.txtar and TestMission_* of the package gateway.
func TestMission_OverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"},
		backend{Name: "second", Embedded: "demo"})
	url := s.serveURL()
	post := func(session, body string) (status int, text, opened string) {
		t.Helper()
		c := rawHTTP{t: t, url: url, session: session}
		res, err := c.do(http.MethodPost, body)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b), res.Header.Get("Mcp-Session-Id")
	}
	open := func(revision string, ready bool) string {
		t.Helper()
		status, text, session := post("",
			`{"jsonrpc":"2.0","id":"init-1","method":"initialize","params":`+
				strings.TrimSuffix(initializeParams(revision), "}")+`,"future":{"x":1}}}`)
		if status != 200 ||
			!strings.HasPrefix(text,
				`{"jsonrpc":"2.0","id":"init-1","result":{"protocolVersion":"`) {
			t.Fatalf("initialize: %d %s", status, text)
		}
		if ready {
			if status, text, _ := post(session,
				`{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != 202 ||
				text != "" {
				t.Fatalf("initialized: %d %s", status, text)
			}
		}
		return session
	}
	ready, batching, created := open("2025-11-25", true), open("2025-03-26", true),
		open("2025-11-25", false)
	if len(ready) < 32 || ready == batching || batching == created {
		t.Errorf("session ids: %s, %s, %s", ready, batching, created)
	}
	deleted := open("2025-11-25", true)
	c := rawHTTP{t: t, url: url, session: deleted}
	if res, err := c.do(http.MethodDelete, ""); err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("DELETE: %v, %v", res, err)
	}
	const call = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`
	failed := func(id, code string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":` + code + `,`
	}
	for _, row := range []struct {
		name, session, body string
		status              int
		want                string // prefix of the response
	}{
		{"A: id null is a request", ready, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, 200,
			`{"jsonrpc":"2.0","id":null,"result":{}}`},
		{"A: no id is a notification", ready, `{"jsonrpc":"2.0","method":"ping"}`, 202, ""},
		{"A: malformed JSON", ready, `{"jsonrpc":"2.0",`, 400, failed("null", "-32700")},
		{"A: no method", ready, `{"jsonrpc":"2.0","id":1}`, 400, failed("1", "-32600")},
		{"A: unknown method", ready, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`, 200,
			failed("1", "-32601")},
		{"A: ping before initialized", created, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 200,
			`{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"A: a call without a session", "", call, 400, failed("5", "-32002")},
		{"A: a call in an unknown session", "nobody", call, 404, `{"jsonrpc":"2.0","id":5,"error"`},
		{"A: a call in a deleted session", deleted, call, 404, `{"jsonrpc":"2.0","id":5,"error"`},
		{"A: a call before initialized", created, call, 200, failed("5", "-32002")},
		{"A: an unknown cancellation is ignored", ready,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`, 202,
			""},
		{"B: the matching id", ready, strings.Replace(call, ":5", `:"five"`, 1), 200,
			`{"jsonrpc":"2.0","id":"five","result":`},
		{"B: a batch, in order", batching,
			`[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 200,
			`[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":1,"result":{}}]`},
		{"B: a batch of notifications", batching, `[{"jsonrpc":"2.0","method":"x"}]`, 202, ""},
		{"D: a batch in a later revision", ready, `[{"jsonrpc":"2.0","id":2,"method":"ping"}]`, 400,
			failed("null", "-32600") + `"message":"Batch requests not supported"`},
		{"D: wrong jsonrpc", ready, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400,
			failed("1", "-32600")},
		{"D: initialize without params", "", `{"jsonrpc":"2.0","id":1,"method":"initialize"}`, 200,
			failed("1", "-32602")},
		{"D: initialize with bad params", "",
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}`, 200,
			failed("1", "-32602")},
		{"C: a second initialize", ready,
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` +
				initializeParams("2025-11-25") + `}`, 200, failed("1", "-32600")},
		{"C: a colliding name has a prefix", ready,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"second__echo","arguments":{"text":"two"}}}`, 200,
			`{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"two","type":"text"}]}}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			status, text, opened := post(row.session, row.body)
			// The response came late, as an event.
			if _, data, isStream := strings.Cut(text, "data: {"); isStream {
				text = "{" + data
			}
			if status != row.status || !strings.HasPrefix(text, row.want) || row.want == "" &&
				text != "" || opened != "" {
				t.Errorf("got  %d %s (session %q)\nwant %d %s", status, text, opened, row.status,
					row.want)
			}
		})
	}
	// Negotiation: a supported revision is echoed, for any other the response has the newest
	// one.
	for requested, want := range map[string]string{"2024-11-05": "2024-11-05",
		"2025-06-18": "2025-06-18", "1999-01-01": "2025-11-25", "2026-07-28": "2025-11-25"} {
		if _, text, _ := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+
			initializeParams(requested)+`}`); !strings.Contains(text,
			`"protocolVersion":"`+want+`"`) {
			t.Errorf("requested %s: %s", requested, text)
		}
	}
}
