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

// A talker is a server that says and asks a great deal while it works on a call, and with all of it whose call that
// is: the owner's name came in the arguments. It has no manners: it asks what no client has declared, and goes on
// when its call is cancelled.
type talker struct {
	write    func(text string, about string) // about is the raw id of a call, "" = none
	complain func(format string, args ...any)
	news     string // the URI of its resource

	mu      sync.Mutex // also keeps what is decided and what is written in one order
	running map[string]*talk
	asked   map[string]chan message
	lastID  int
	idle    []func()        // called when no talk runs
	early   map[string]bool // ids of calls whose cancellation came before them, as it may over HTTP
}

// A talk is one call of the tool talk: its arguments, and how it goes.
type talk struct {
	Owner   string
	Call    int
	Steps   []talkStep
	Answers bool // even if it was cancelled
	Retract bool // takes its question back when the call is cancelled

	id, token string
	cancelled chan struct{}
	late      bool // it was cancelled
	Said      talkCount
}

// A talkStep is something that a talker says, after a pause.
type talkStep struct {
	Micros int
	Kind   string // progress, log, elicit, sample or roots
	Aside  bool   // on no call's stream, where there are several
}

// A talkCount is part of a talk's result.
type talkCount struct{ Answered, Refused int }

func newTalker(news string, write func(text, about string), complain func(string, ...any)) *talker {
	return &talker{news: news, write: write, complain: complain, running: map[string]*talk{}, asked: map[string]chan message{}, early: map[string]bool{}}
}

const talkerTools = `{"tools":[{"name":"talk","inputSchema":{"type":"object"}},{"name":"settle","inputSchema":{"type":"object"}},` +
	`{"name":"echo","inputSchema":{"type":"object"}}]}`

// receive takes one message of the client.
func (s *talker) receive(line []byte) {
	m, err := parseMessage(bytes.Clone(line))
	if err != nil {
		s.complain("got %q: %v", line, err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := string(m.ID)
	reply := func(result string) { s.write(`{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`, id) }
	switch m.Method {
	case "":
		if answer := s.asked[id]; answer != nil {
			delete(s.asked, id)
			answer <- m
		} else {
			s.complain("an answer to no question: %s", m.Raw)
		}
	case "initialize":
		reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},` +
			`"serverInfo":{"name":"talker","version":"1"}}`)
	case "tools/list":
		reply(talkerTools)
	case "resources/list":
		reply(`{"resources":[{"name":"news","uri":"` + s.news + `"}]}`)
	case "resources/templates/list":
		reply(`{"resourceTemplates":[]}`)
	case "resources/subscribe":
		reply(`{}`)
		s.write(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"`+s.news+`"}}`, "")
	case "ping", "resources/unsubscribe", "logging/setLevel":
		reply(`{}`)
	case "notifications/cancelled":
		var params struct{ RequestID json.RawMessage }
		json.Unmarshal(m.Params, &params)
		if t := s.running[string(params.RequestID)]; t == nil {
			s.early[string(params.RequestID)] = true
		} else {
			t.cancelLocked()
		}
	case "tools/call":
		s.callLocked(m, reply)
	default:
		if m.ID != nil {
			s.write(`{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32601,"message":"no `+m.Method+`"}}`, id)
		}
	}
}

func (s *talker) callLocked(m message, reply func(string)) {
	var params struct {
		Name      string
		Arguments json.RawMessage
		Meta      struct{ ProgressToken json.RawMessage } `json:"_meta"`
	}
	json.Unmarshal(m.Params, &params)
	switch params.Name {
	case "talk":
		t := &talk{id: string(m.ID), token: string(params.Meta.ProgressToken), cancelled: make(chan struct{})}
		if err := json.Unmarshal(params.Arguments, t); err != nil {
			s.complain("arguments: %v", err)
		}
		s.running[t.id] = t
		if s.early[t.id] {
			t.cancelLocked()
		}
		go s.talk(t)
	case "settle": // is answered when no talk runs any more
		s.idle = append(s.idle, func() { reply(`{"content":[]}`) })
		s.restLocked()
	default:
		reply(`{"content":[{"type":"text","text":"echo"}]}`)
	}
}

func (t *talk) cancelLocked() {
	if !t.late {
		t.late = true
		close(t.cancelled)
	}
}

func (s *talker) restLocked() {
	if len(s.running) > 0 {
		return
	}
	for _, f := range s.idle {
		f()
	}
	s.idle = nil
}

func (s *talker) talk(t *talk) {
	for n, step := range t.Steps {
		<-time.After(time.Duration(step.Micros) * time.Microsecond)
		if step.Kind == "progress" || step.Kind == "log" {
			s.say(t, n+1, step)
		} else {
			s.ask(t, n+1, step)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.late || t.Answers {
		count, _ := json.Marshal(t.Said)
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}],"structuredContent":%s}}`,
			t.id, t.tag(0), count), t.id)
	}
	delete(s.running, t.id)
	s.restLocked()
}

// tag says whose something is, and whether it was said after the call was cancelled.
func (t *talk) tag(n int) string {
	return fmt.Sprintf("who=%s call=%d n=%d late=%t;", t.Owner, t.Call, n, t.late)
}

func (t *talk) stream(step talkStep) string {
	if step.Aside {
		return ""
	}
	return t.id
}

func (s *talker) say(t *talk, n int, step talkStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step.Kind == "log" {
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`, t.tag(n)), t.stream(step))
		return
	}
	s.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`,
		t.token, n, t.tag(n)), t.id)
}

// ask asks the client something and waits for the answer, which must be the owner's, or until the call is cancelled.
func (s *talker) ask(t *talk, n int, step talkStep) {
	answer := make(chan message, 1)
	s.mu.Lock()
	s.lastID++
	id := fmt.Sprint(s.lastID)
	if s.lastID%2 == 0 {
		id = fmt.Sprintf(`"q%d"`, s.lastID)
	}
	s.asked[id] = answer
	tag := t.tag(n)
	var method, params string
	switch step.Kind {
	case "elicit":
		method = "elicitation/create"
		params = `{"message":"` + tag + `","requestedSchema":{"type":"object","properties":{"by":{"type":"string"}}}}`
	case "sample":
		method = "sampling/createMessage"
		params = `{"messages":[{"role":"user","content":{"type":"text","text":"` + tag + `"}}],"maxTokens":1}`
	case "roots":
		method = "roots/list"
		params = `{"_meta":{"tag":"` + tag + `"}}`
	}
	s.write(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`, t.stream(step))
	s.mu.Unlock()

	select {
	case m := <-answer:
		s.check(t, tag, m)
		return
	case <-t.cancelled:
	case <-time.After(patience / 2):
		s.complain("no answer to %s", tag)
		return
	}
	if t.Retract {
		s.mu.Lock()
		s.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, t.stream(step))
		s.mu.Unlock()
		return // the answer may be on its way, and is no news then
	}
	select {
	case m := <-answer:
		s.check(t, tag, m)
	case <-time.After(20 * time.Millisecond): // the question may have been lost together with the call's stream
	}
}

// check looks at the answer to a question. That it is declined is right if no client is certain to be the one that is
// asked, or if the client has taken the call back: it may be that this is still to be heard.
func (s *talker) check(t *talk, tag string, m message) {
	declined := m.Error != nil || string(m.Result) == `{"action":"cancel"}`
	if declined && m.code() != -32601 {
		select {
		case <-t.cancelled:
		case <-time.After(patience / 2):
			s.mu.Lock()
			defer s.mu.Unlock()
			s.complain("answer to %s: %s", tag, m.Raw)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.code() == -32601:
		t.Said.Refused++
	case !strings.Contains(string(m.Result), "by="+t.Owner+" "+tag):
		s.complain("answer to %s: %s", tag, m.Raw)
	default:
		t.Said.Answered++
	}
}

// What the talkers have to read.
const (
	stdioNews = "talker://news"
	siteNews  = "talker-site://news"
)

// playTalker is a talker over stdio. What it complains of stands in the notes.
func playTalker() int {
	s := newTalker(stdioNews, func(text, _ string) { fmt.Println(text) }, func(format string, args ...any) { note("WRONG: "+format, args...) })
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

// A talkerSite is a talker over streamable HTTP, one for each session.
type talkerSite struct {
	t testing.TB

	mu       sync.Mutex
	sessions map[string]*talkerSession
	opened   int
}

type talkerSession struct {
	*talker
	closed chan struct{}
	alone  chan string // the GET stream

	mu      sync.Mutex
	streams map[string]chan string // by raw ids
}

func newTalkerSite(t testing.TB) *talkerSite {
	return &talkerSite{t: t, sessions: map[string]*talkerSession{}}
}

func (s *talkerSite) open() (id string, _ *talkerSession) {
	one := &talkerSession{closed: make(chan struct{}), alone: make(chan string, 4096), streams: map[string]chan string{}}
	one.talker = newTalker(siteNews, one.put, s.t.Errorf)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	id = fmt.Sprintf("talker-%d", s.opened)
	s.sessions[id] = one
	return id, one
}

// count is how many sessions are open.
func (s *talkerSite) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// put puts a message on a stream. What belongs to a call that nobody listens to any more is lost.
func (one *talkerSession) put(text, about string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	stream := one.alone
	if about != "" {
		stream = one.streams[about]
	}
	select {
	case stream <- text:
	default: // nobody is there, or it is full
	}
}

func (s *talkerSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
		one.stream(w, r, one.alone, "")
	case http.MethodPost:
		s.post(w, r, one)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *talkerSite) post(w http.ResponseWriter, r *http.Request, one *talkerSession) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := parseMessage(body)
	if err != nil {
		s.t.Errorf("posted: %v: %q", err, body)
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

// stream sends what comes until the answer to the request id.
func (one *talkerSession) stream(w http.ResponseWriter, r *http.Request, stream <-chan string, id string) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	flush()
	for {
		select {
		case text := <-stream:
			if id == "" { // the two streams are two connections, of which one may be slower
				<-time.After(time.Millisecond)
			}
			fmt.Fprintf(w, "data: %s\n\n", text)
			flush()
			if m, _ := parseMessage([]byte(text)); id != "" && m.Method == "" && string(m.ID) == id {
				return
			}
		case <-one.closed:
			return
		case <-r.Context().Done():
			return
		}
	}
}
