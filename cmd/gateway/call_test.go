package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// All texts of this test's server contain its secret, control characters and a line that imitates a
// line of the gateway. The output of call, tools and check does not contain the secret. It has one
// line for each text, except that call keeps the lines of a result with isError.
func TestServerTextIsMaskedInOutput_F_SEC_11_F_MASK_1(t *testing.T) {
	const secret = "tok-q9ZkTm4vXr7Lw2Pb8N"
	text := `oops ` + secret + `\ngateway: forged \u001b[31m`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := wire.Parse(body)
		answer := ""
		switch {
		case m.Method() == "initialize":
			answer = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case m.Method() == "tools/list":
			answer = `"result":{"tools":[{"name":"error","description":"` + text +
				`","inputSchema":{"type":"object","properties":` +
				`{"a":{"type":"string","description":"` + text +
				`"}}}},{"name":"fails","inputSchema":{"type":"object"}},` +
				`{"name":"works","inputSchema":{"type":"object"}},{"name":"x-` + secret +
				`","inputSchema":{"type":"object","properties":` +
				`{"p-` + secret + `":{"type":"string"}}}},{"name":"bad-` + secret +
				`","inputSchema":"no"}]}`
		case m.Method() != "tools/call":
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Name() == "error":
			answer = `"error":{"code":-32000,"message":"` + text + `"}`
		case m.Name() == "fails":
			answer = `"result":{"isError":true,"content":[{"type":"text","text":"` + text + `"}]}`
		default:
			answer = `"result":{"content":[{"type":"text","text":"` + text + `"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID())+`,`+answer+`}`)
	}))
	defer server.Close()
	path := file(t, "gateway.yaml", "state: none\nbackends:\n- {name: a, url: '"+server.URL+
		"', era: legacy, headers: {X-Api-Key: "+secret+"}}\n")
	for _, c := range []struct {
		verb   string
		code   int
		forged bool // the text is printed on several lines
	}{
		{"call error", exitFailed, false}, {"call fails", exitFailed, true},
		{"tools", exitOK, false}, {"tools error", exitOK, false},
		{"tools --log-level debug", exitOK, false}, {"tools x-" + secret, exitOK, false},
		{"check --log-level debug", exitOK, false},
	} {
		code, out, stderr := runPiped(t, nil,
			append(strings.Fields(c.verb), "-c", path)...).output()
		text := out + stderr
		if code != c.code || !strings.Contains(text, "***") {
			t.Errorf("%s: exit code %d and\n%s", c.verb, code, text)
		}
		if strings.Contains(text, secret) ||
			!c.forged && strings.Contains("\n"+text, "\ngateway: forged") ||
			c.verb == "call error" && strings.Contains(text, "\x1b") {
			t.Errorf("%s printed\n%q", c.verb, text)
		}
	}
	if code, out, _ := runPiped(t, nil, "call", "works", "-c", path).output(); code != exitOK ||
		!strings.Contains(out, secret+"\ngateway: forged \x1b[31m") {
		t.Errorf("a result is not printed as it is: exit code %d and %q", code, out)
	}
}

// Arguments that are not a valid message are reported as an error.
func TestCallWithInvalidArguments(t *testing.T) {
	path := file(t, "gateway.yaml", "state: none\nbackends:\n- {name: a, embedded: demo}\n")
	for arguments, want := range map[string]string{
		"{\"text\":\"\xff\"}": "invalid UTF-8",
		`{"text":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`: "nests deeper",
	} {
		code, out, stderr := runPiped(t, nil, "call", "echo", arguments, "-c", path).output()
		if code != exitFailed || out != "" ||
			!strings.Contains(stderr, "the arguments cannot be sent: ") ||
			!strings.Contains(stderr, want) {
			t.Errorf("%.20q: exit code %d and %s", arguments, code, stderr)
		}
	}
}
