//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// An attributionServer sends many notifications and requests during each call, each labelled
// with the client's name (from the arguments) and the call. It ignores rules: it sends requests
// for which no client has declared a capability, and continues when its call is cancelled.
type attributionServer struct {
	// about is the raw id of the related call; "" = none
	write       func(text string, about string)
	reportFault func(format string, args ...any)
	resource    string // URI of its resource

	mu      sync.Mutex // also keeps decisions and writes in one order
	running map[string]*scriptedCall
	pending map[string]chan message
	lastID  int
	idle    []func() // called when no script runs
	// Ids of calls whose cancellation came first, as can happen over HTTP.
	cancelledEarly map[string]bool
}

// A scriptedCall is one call of the tool script: its arguments and its state.
type scriptedCall struct {
	Client         string
	Call           int
	Steps          []scriptStep
	Respond        bool // respond even if cancelled
	CancelRequests bool // cancel pending requests when the call is cancelled

	id, token    string
	cancelled    chan struct{}
	wasCancelled bool
	Counts       responseCounts
}

// A scriptStep is one message that the server sends, after a pause.
type scriptStep struct {
	Micros     int
	Kind       string // progress, log, elicit, sample or roots
	Standalone bool   // on the standalone stream, if there is one
}

// responseCounts is part of a script's result.
type responseCounts struct{ Answered, Rejected int }

func newAttributionServer(
	resource string, write func(text, about string), reportFault func(string, ...any),
) *attributionServer {
	return &attributionServer{
		resource: resource, write: write, reportFault: reportFault,
		running: map[string]*scriptedCall{}, pending: map[string]chan message{},
		cancelledEarly: map[string]bool{},
	}
}

const attributionTools = `{"tools":[{"name":"script","inputSchema":{"type":"object"}},{"name":"await_idle","inputSchema":{"type":"object"}},` +
	`{"name":"echo","inputSchema":{"type":"object"}}]}`

// receive handles one message of the client.
func (s *attributionServer) receive(line []byte) {
	m, err := parseMessage(bytes.Clone(line))
	if err != nil {
		s.reportFault("got %q: %v", line, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := string(m.ID)
	reply := func(result string) {
		s.write(`{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`, id)
	}
	switch m.Method {
	case "":
		if response := s.pending[id]; response != nil {
			delete(s.pending, id)
			response <- m
		} else {
			s.reportFault("a response without a request: %s", m.Raw)
		}
	case "initialize":
		reply(
			`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},` +
				`"serverInfo":{"name":"attribution","version":"1"}}`)
	case "tools/list":
		reply(attributionTools)
	case "resources/list":
		reply(`{"resources":[{"name":"news","uri":"` + s.resource + `"}]}`)
	case "resources/templates/list":
		reply(`{"resourceTemplates":[]}`)
	case "resources/subscribe":
		reply(`{}`)
		s.write(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"`+
			s.resource+`"}}`, "")
	case "ping", "resources/unsubscribe", "logging/setLevel":
		reply(`{}`)
	case "notifications/cancelled":
		var params struct{ RequestID json.RawMessage }
		json.Unmarshal(m.Params, &params)
		if t := s.running[string(params.RequestID)]; t == nil {
			s.cancelledEarly[string(params.RequestID)] = true
		} else {
			t.cancelLocked()
		}
	case "tools/call":
		s.callLocked(m, reply)
	default:
		if m.ID != nil {
			s.write(`{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32601,"message":"no `+m.Method+
				`"}}`, id)
		}
	}
}

func (s *attributionServer) callLocked(m message, reply func(string)) {
	var params struct {
		Name      string
		Arguments json.RawMessage
		Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
	}
	json.Unmarshal(m.Params, &params)
	switch params.Name {
	case "script":
		t := &scriptedCall{id: string(m.ID), token: string(params.Meta.ProgressToken),
			cancelled: make(chan struct{})}
		if err := json.Unmarshal(params.Arguments, t); err != nil {
			s.reportFault("arguments: %v", err)
		}
		s.running[t.id] = t
		if s.cancelledEarly[t.id] {
			t.cancelLocked()
		}
		go s.runScript(t)
	case "await_idle": // responds when no script runs
		s.idle = append(s.idle, func() { reply(`{"content":[]}`) })
		s.signalIdleLocked()
	default:
		reply(`{"content":[{"type":"text","text":"echo"}]}`)
	}
}

func (t *scriptedCall) cancelLocked() {
	if !t.wasCancelled {
		t.wasCancelled = true
		close(t.cancelled)
	}
}

func (s *attributionServer) signalIdleLocked() {
	if len(s.running) > 0 {
		return
	}
	for _, f := range s.idle {
		f()
	}
	s.idle = nil
}

func (s *attributionServer) runScript(t *scriptedCall) {
	for n, step := range t.Steps {
		<-time.After(time.Duration(step.Micros) * time.Microsecond)
		if step.Kind == "progress" || step.Kind == "log" {
			s.notify(t, n+1, step)
		} else {
			s.request(t, n+1, step)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.wasCancelled || t.Respond {
		count, _ := json.Marshal(t.Counts)
		s.write(
			fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}],"structuredContent":%s}}`,
				t.id, t.label(0), count), t.id)
	}
	delete(s.running, t.id)
	s.signalIdleLocked()
}

// label names the client and the call of a message, and whether the message was sent after the
// cancellation.
func (t *scriptedCall) label(n int) string {
	return fmt.Sprintf("client=%s call=%d n=%d late=%t;", t.Client, t.Call, n, t.wasCancelled)
}

func (t *scriptedCall) stream(step scriptStep) string {
	if step.Standalone {
		return ""
	}
	return t.id
}

func (s *attributionServer) notify(t *scriptedCall, n int, step scriptStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step.Kind == "log" {
		s.write(
			fmt.Sprintf(
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`, t.label(n)), t.stream(step))
		return
	}
	s.write(
		fmt.Sprintf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`,
			t.token, n, t.label(n)), t.id)
}

// request sends a request and waits for the response, which must come from the right client, or
// until the call is cancelled.
func (s *attributionServer) request(t *scriptedCall, n int, step scriptStep) {
	response := make(chan message, 1)
	s.mu.Lock()
	s.lastID++
	id := fmt.Sprint(s.lastID)
	if s.lastID%2 == 0 {
		id = fmt.Sprintf(`"q%d"`, s.lastID)
	}
	s.pending[id] = response
	tag := t.label(n)
	var method, params string
	switch step.Kind {
	case "elicit":
		method = "elicitation/create"
		params = `{"message":"` + tag +
			`","requestedSchema":{"type":"object","properties":{"by":{"type":"string"}}}}`
	case "sample":
		method = "sampling/createMessage"
		params = `{"messages":[{"role":"user","content":{"type":"text","text":"` + tag +
			`"}}],"maxTokens":1}`
	case "roots":
		method = "roots/list"
		params = `{"_meta":{"tag":"` + tag + `"}}`
	}
	s.write(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`,
		t.stream(step))
	s.mu.Unlock()

	select {
	case m := <-response:
		s.check(t, tag, m)
		return
	case <-t.cancelled:
	case <-time.After(waitTimeout / 2):
		s.reportFault("no response to %s", tag)
		return
	}
	if t.CancelRequests {
		s.mu.Lock()
		s.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+
			`}}`, t.stream(step))
		s.mu.Unlock()
		return // a response that is already on its way is ignored
	}
	select {
	case m := <-response:
		s.check(t, tag, m)
	// The request may have been lost together with the call's stream.
	case <-time.After(20 * time.Millisecond):
	}
}

// check checks the response to a request. Declining is correct if the client is ambiguous, or if
// the client has cancelled the call; the cancellation may arrive later.
func (s *attributionServer) check(t *scriptedCall, tag string, m message) {
	declined := m.Error != nil || string(m.Result) == `{"action":"cancel"}`
	if declined && m.code() != -32601 {
		select {
		case <-t.cancelled:
		case <-time.After(waitTimeout / 2):
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reportFault("response to %s: %s", tag, m.Raw)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.code() == -32601:
		t.Counts.Rejected++
	case !strings.Contains(string(m.Result), "by="+t.Client+" "+tag):
		s.reportFault("response to %s: %s", tag, m.Raw)
	default:
		t.Counts.Answered++
	}
}

// URIs of the resources of the servers.
const (
	stdioResource = "attribution://news"
	httpResource  = "attribution-http://news"
)

// runAttributionServer serves stdio. Faults that it detects are written to the notes.
func runAttributionServer() int {
	s := newAttributionServer(stdioResource, func(text, _ string) { fmt.Println(text) },
		func(format string, args ...any) { note("FAULT: "+format, args...) })
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.receive(line)
		}
		if err != nil {
			return 0
		}
	}
}

// attributionHTTP serves streamable HTTP, with one attributionServer for each session.
type attributionHTTP struct {
	t testing.TB

	mu       sync.Mutex
	sessions map[string]*attributionSession
	opened   int
}

type attributionSession struct {
	*attributionServer
	closed     chan struct{}
	standalone chan string // the GET stream

	mu      sync.Mutex
	streams map[string]chan string // by raw id
}

func newAttributionHTTP(t testing.TB) *attributionHTTP {
	return &attributionHTTP{t: t, sessions: map[string]*attributionSession{}}
}

func (s *attributionHTTP) open() (id string, _ *attributionSession) {
	one := &attributionSession{closed: make(chan struct{}), standalone: make(chan string, 4096),
		streams: map[string]chan string{}}
	one.attributionServer = newAttributionServer(httpResource, one.put, s.t.Errorf)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	id = fmt.Sprintf("session-%d", s.opened)
	s.sessions[id] = one
	return id, one
}

// count returns the number of open sessions.
func (s *attributionHTTP) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// put sends a message on a stream. A message for a call without a reader is lost.
func (one *attributionSession) put(text, about string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	stream := one.standalone
	if about != "" {
		stream = one.streams[about]
	}
	select {
	case stream <- text:
	default: // no reader, or the buffer is full
	}
}

func (s *attributionHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")
	s.mu.Lock()
	one := s.sessions[id]
	if r.Method == http.MethodDelete {
		delete(s.sessions, id)
	}
	s.mu.Unlock()
	if one == nil && (id != "" || r.Method != http.MethodPost) {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	switch r.Method {
	case http.MethodDelete:
		close(one.closed)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet:
		one.stream(w, r, one.standalone, "")
	case http.MethodPost:
		s.post(w, r, one)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *attributionHTTP) post(w http.ResponseWriter, r *http.Request, one *attributionSession) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := parseMessage(body)
	if err != nil {
		s.t.Errorf("POST: %v: %q", err, body)
	}
	if one == nil {
		var id string
		id, one = s.open()
		w.Header().Set("Mcp-Session-Id", id)
	}
	if m.Method == "" || m.ID == nil {
		one.receive(body)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	stream := make(chan string, 256)
	one.mu.Lock()
	one.streams[string(m.ID)] = stream
	one.mu.Unlock()
	defer func() {
		one.mu.Lock()
		delete(one.streams, string(m.ID))
		one.mu.Unlock()
	}()
	one.receive(body)
	if m.Method == "tools/call" {
		one.stream(w, r, stream, string(m.ID))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, <-stream)
}

// stream sends messages up to the response to the request id.
func (one *attributionSession) stream(
	w http.ResponseWriter, r *http.Request, stream <-chan string, id string,
) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	flush()
	for {
		select {
		case text := <-stream:
			if id == "" { // the two streams are two connections, one of which may be slower
				<-time.After(time.Millisecond)
			}
			fmt.Fprintf(w, "data: %s\n\n", text)
			flush()
			if m, _ := parseMessage([]byte(text)); id != "" && m.Method == "" &&
				string(m.ID) == id {
				return
			}
		case <-one.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}
