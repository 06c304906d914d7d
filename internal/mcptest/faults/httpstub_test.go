//go:build unix

package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/faults"
)

// An httpClient is a client of an HTTPStub.
type httpClient struct {
	t       *testing.T
	stub    *faults.HTTPStub
	url     string
	session string
	client  http.Client
}

// newHTTPClient starts an HTTPStub and opens a session.
func newHTTPClient(t *testing.T, script faults.Script) *httpClient {
	t.Helper()
	stub := faults.NewHTTPStub(script)
	server := httptest.NewUnstartedServer(stub)
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(stub.Close)
	hc := &httpClient{t: t, stub: stub, url: server.URL + "/mcp", client: http.Client{
		Timeout:   waitTimeout,
		Transport: &http.Transport{DisableKeepAlives: true}, // prevents retries
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
	hc.open()
	return hc
}

func (hc *httpClient) open() {
	hc.t.Helper()
	hc.session = ""
	res, _, err := hc.post(initialize)
	if err != nil {
		hc.t.Fatal(err)
	}
	hc.session = res.Header.Get("Mcp-Session-Id")
}

func (hc *httpClient) post(body string) (res *http.Response, text string, err error) {
	req, _ := http.NewRequest(http.MethodPost, hc.url, strings.NewReader(body))
	if hc.session != "" {
		req.Header.Set("Mcp-Session-Id", hc.session)
	}
	res, err = hc.client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return res, string(all), err
}

func TestHTTPStub(t *testing.T) {
	hc := newHTTPClient(t, faults.Script{Name: "h1"})
	if hc.session == "" {
		t.Fatal("no session")
	}
	res, _, err := hc.post(initialized)
	if err != nil || res.StatusCode != http.StatusAccepted {
		t.Error(res, err)
	}
	_, text, err := hc.post(
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{ "a":1e400 }}}`)
	if want := `"structuredContent":{"stub":"h1","pid":0,"got":{ "a":1e400 }}}}`; err != nil ||
		!strings.HasSuffix(text, want) {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
	_, text, _ = hc.post(
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{"ms":3,"steps":1},"_meta":{"progressToken":"p"}}}`)
	if !strings.Contains(text, `"progressToken":"p","progress":1`) ||
		!strings.Contains(text, `"got":{"ms":3`) {
		t.Error(text)
	}
}

// A POST with a fault gets a response with the effect of the fault.
func TestHTTPFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault  string
		status int
		kind   string // Content-Type
		body   string // text that the body must contain
		broken bool   // the connection ends before the end of the body
	}{
		"a status": {`{"fault":"status","code":503,"retry":"7"}`, 503,
			"text/html; charset=utf-8", "<html>", false},
		"HTML": {`{"fault":"status","code":200,"text":"<p>hi"}`, 200,
			"text/html; charset=utf-8", "<p>hi", false},
		"a cut before": {`{"fault":"cut","at":"before"}`, 200, "text/event-stream", "",
			true},
		"a cut in an event": {`{"fault":"cut","at":"middle"}`, 200, "text/event-stream",
			"event: message\ndata: {", true},
		"a cut after an event": {`{"fault":"cut","at":"after"}`, 200, "text/event-stream",
			"notifications/message", true},
		"an end after the response": {`{"fault":"die","at":"after"}`, 200, "text/event-stream",
			`"got"`,
			true},
		"chunks": {`{"fault":"chunks","bytes":50,"for":"1ms"}`, 200,
			"application/json", `"got"`, false},
		"another type": {`{"fault":"type","text":"text/plain"}`, 200, "text/plain", `"got"`,
			false},
		"a redirect": {`{"fault":"redirect"}`, 307, "", "", false},
		"noise": {`{"fault":"noise"}`, 200, "text/event-stream",
			"data: ✓ server ready", false},
		"a storm": {`{"fault":"notify","what":"progress","times":3}`, 200,
			"text/event-stream", `"progressToken":"tok"`, false},
		"twice": {`{"fault":"id","how":"twice"}`, 200, "text/event-stream", `"got"`,
			false},
		"a lost session": {`{"fault":"session","code":404}`, 404, "application/json",
			"Session not found", false},
		"a lost session, 400": {`{"fault":"session","code":400}`, 400, "application/json",
			"Session not found", false},
		"a lost session, 200": {`{"fault":"session","code":200}`, 200, "application/json",
			"-32600", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hc := newHTTPClient(t, faults.Script{})
			res, body, err := hc.post(do(5, c.fault))
			if res == nil {
				t.Fatal(err)
			}
			if (err != nil) != c.broken {
				t.Errorf("end of the body: %v", err)
			}
			kind := res.Header.Get("Content-Type")
			if res.StatusCode != c.status || kind != c.kind || !strings.Contains(body, c.body) {
				t.Errorf("%s, %s: %.300s", res.Status, kind, body)
			}
		})
	}
}

func TestLostSession(t *testing.T) {
	hc := newHTTPClient(t, faults.Script{})
	hc.post(do(5, `{"fault":"session","code":400}`))
	if res, _, _ := hc.post(list); res.StatusCode != http.StatusBadRequest {
		t.Error(res.Status)
	}
	hc.open()
	if res, _, _ := hc.post(list); res.StatusCode != http.StatusOK {
		t.Error(res.Status)
	}
	hc.stub.DropSessions(0)
	if res, _, _ := hc.post(list); res.StatusCode != http.StatusNotFound ||
		hc.stub.SessionCount() != 0 {
		t.Error(res.Status)
	}
}

func TestHTTPReset(t *testing.T) {
	hc := newHTTPClient(t, faults.Script{})
	if _, _, err := hc.post(do(5, `{"fault":"reset"}`)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
}

func TestHTTPSilent(t *testing.T) {
	hc := newHTTPClient(t, faults.Script{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, hc.url,
		strings.NewReader(do(5, `{"fault":"silent"}`)))
	req.Header.Set("Mcp-Session-Id", hc.session)
	if res, err := hc.client.Do(req); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(res, err)
	}
}

func TestFailNext(t *testing.T) {
	hc := newHTTPClient(t, faults.Script{})
	hc.stub.FailNext(faults.Fault{Kind: "status", Code: 500}, 2)
	for _, want := range []int{500, 500, 200} {
		if res, _, err := hc.post(list); err != nil || res.StatusCode != want {
			t.Errorf("%v, %v: want %d", res, err, want)
		}
	}
}

func TestModernHTTPStub(t *testing.T) {
	hc := newHTTPClient(t, faults.Script{Generation: "modern"})
	if hc.session != "" {
		t.Error("a session was opened")
	}
	body := fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{%q:"2026-07-28"}}}`,
		"io.modelcontextprotocol/protocolVersion")
	if _, text, err := hc.post(body); err != nil ||
		!bytes.Contains([]byte(text), []byte(`"supportedVersions"`)) {
		t.Error(text, err)
	}
	res, err := hc.client.Get(hc.url)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMethodNotAllowed {
		t.Error(res.Status)
	}
}
