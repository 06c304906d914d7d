package faults

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

// A HTTPStub is the stub over streamable HTTP, at any path. It is of the era that its script
// says. Serve it with any http.Server; what it does not answer ends when the client
// hangs up, or with Close.
type HTTPStub struct {
	*server
	closed chan struct{}
	once   sync.Once

	state    sync.Mutex
	sessions map[string]bool
	lost     int     // the status by which unknown sessions are told so
	next     []Fault // for the next POSTs
	muted    time.Time
}

// NewHTTPStub returns a HTTPStub.
func NewHTTPStub(s Script) *HTTPStub {
	return &HTTPStub{server: newServer(s, 0), closed: make(chan struct{}), sessions: make(map[string]bool), lost: http.StatusNotFound}
}

// Close ends all that hangs.
func (t *HTTPStub) Close() { t.once.Do(func() { close(t.closed) }) }

// FailNext has a deed done at the next n requests that are posted, whatever they are.
func (t *HTTPStub) FailNext(d Fault, n int) {
	t.state.Lock()
	defer t.state.Unlock()
	for range n {
		t.next = append(t.next, d)
	}
}

// DropSessions loses all sessions. Whoever comes with one is told by status: 404, 400, or 200 with an error in
// the body.
func (t *HTTPStub) DropSessions(status int) {
	t.state.Lock()
	defer t.state.Unlock()
	clear(t.sessions)
	if t.lost = status; status == 0 {
		t.lost = http.StatusNotFound
	}
}

// SessionCount returns how many are open.
func (t *HTTPStub) SessionCount() int {
	t.state.Lock()
	defer t.state.Unlock()
	return len(t.sessions)
}

const (
	sessionHeader = "Mcp-Session-Id"
	circlePath    = "/circle" // leads to itself
	jsonType      = "application/json"
	eventsType    = "text/event-stream"
)

// ServeHTTP implements http.NewHTTPStub.
func (t *HTTPStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, circlePath):
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	case r.Method == http.MethodPost:
		t.post(w, r)
	case r.Method == http.MethodGet && !t.NoGet && t.Generation != "modern":
		t.listen(w, r)
	case r.Method == http.MethodDelete && t.Generation != "modern":
		t.state.Lock()
		delete(t.sessions, r.Header.Get(sessionHeader))
		t.state.Unlock()
	default:
		w.Header().Set("Allow", "POST")
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
	}
}

// listen is a stream on which nothing comes.
func (t *HTTPStub) listen(w http.ResponseWriter, r *http.Request) {
	if status := t.knows(r, nil); status != 0 {
		http.Error(w, "no such session", status)
		return
	}
	w.Header().Set("Content-Type", eventsType)
	_ = http.NewResponseController(w).Flush()
	t.hang(r)
}

// hang waits until the client hangs up.
func (t *HTTPStub) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-t.closed:
	}
}

func (t *HTTPStub) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := wire.Parse(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	deeds := append(t.scripted(m.Method()), t.due()...)
	if m.Method() == "tools/call" && m.Name() == "do" {
		more, err := asked(m.Part(wire.PartArguments))
		if err != nil {
			w.Header().Set("Content-Type", jsonType)
			w.Write(wire.NewErrorResponse(m.ID(), wire.Errorf(wire.CodeInvalidParams, "%v", err)).Raw())
			return
		}
		deeds = append(deeds, more...)
	}
	p := t.plan(m, deeds, "")
	if p.die != nil && p.die.At == "reading" {
		reset(w)
		return
	}
	if status := t.knows(r, &m); status != 0 {
		t.strange(w, m, status)
		return
	}
	if m.Method() == "tools/call" && m.Name() == "slow" && !t.dawdles(m) {
		ms, _ := slowly(m)
		p.delay += time.Duration(ms) * time.Millisecond
	}
	t.answer(w, r, m, p)
}

// due takes the deeds out that Next has left for one request.
func (t *HTTPStub) due() (deeds []Fault) {
	t.state.Lock()
	defer t.state.Unlock()
	if len(t.next) > 0 {
		deeds, t.next = t.next[:1:1], t.next[1:]
	}
	return deeds
}

// knows returns the status with which a session is refused, 0 if it is not.
func (t *HTTPStub) knows(r *http.Request, m *wire.Message) int {
	if m != nil && (modern(*m) || m.Method() == "initialize" || m.Method() == "server/discover") {
		return 0
	}
	key := r.Header.Get(sessionHeader)
	t.state.Lock()
	defer t.state.Unlock()
	switch {
	case t.sessions[key], t.Generation == "modern" && key == "":
		return 0
	case key == "":
		return http.StatusBadRequest
	}
	return t.lost
}

// strange answers who comes with a session that is not known.
func (t *HTTPStub) strange(w http.ResponseWriter, m wire.Message, status int) {
	id := m.ID()
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	w.Write(wire.NewErrorResponse(id, wire.Errorf(wire.CodeInvalidRequest, "Session not found")).Raw())
}

// dawdles reports whether slow shows its progress, for which there has to be a stream.
func (t *HTTPStub) dawdles(m wire.Message) bool {
	_, steps := slowly(m)
	return steps > 0 && m.Token() != ""
}

// answer does what is planned.
func (t *HTTPStub) answer(w http.ResponseWriter, r *http.Request, m wire.Message, p plan) {
	if p.delay > 0 {
		select {
		case <-time.After(p.delay):
		case <-r.Context().Done():
			return
		}
	}
	if p.mute != nil {
		t.mute(*p.mute)
	}
	if p.web != nil && t.web(w, r, m, *p.web) {
		return
	}
	switch {
	case m.Kind() != wire.Request:
		w.WriteHeader(http.StatusAccepted)
		return
	case t.isMute(), p.answer == nil && len(p.before) == 0:
		t.hang(r)
		return
	}
	if m.Method() == "initialize" && t.Generation != "modern" {
		key := rand.Text()
		t.state.Lock()
		t.sessions[key] = true
		t.state.Unlock()
		w.Header().Set(sessionHeader, key)
	}
	if t.streams(m, p) {
		t.events(w, r, m, p)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	if p.kind != "" {
		w.Header().Set("Content-Type", p.kind)
	}
	t.write(w, p.answer, p)
}

// streams reports whether an answer takes more than one message.
func (t *HTTPStub) streams(m wire.Message, p plan) bool {
	return t.AlwaysStream || len(p.before)+len(p.after)+len(p.between) > 0 || p.die != nil || p.answer == nil ||
		p.web != nil && p.web.Kind == "cut" || m.Method() == "tools/call" && m.Name() == "slow" && t.dawdles(m)
}

// events writes an answer as a stream.
func (t *HTTPStub) events(w http.ResponseWriter, r *http.Request, m wire.Message, p plan) {
	w.Header().Set("Content-Type", eventsType)
	if p.kind != "" {
		w.Header().Set("Content-Type", p.kind)
	}
	flush := http.NewResponseController(w).Flush
	_ = flush()
	if t.dawdles(m) && m.Name() == "slow" && !t.progress(w, r, m) {
		return
	}
	for _, message := range p.before {
		t.write(w, event(message), p)
	}
	_ = flush()
	at, cut := "", p.web != nil && p.web.Kind == "cut"
	switch {
	case p.die != nil:
		at = p.die.At
	case cut:
		at = p.web.At
	}
	answer := event(p.answer)
	switch half := len(answer) / 2; {
	case p.die == nil && !cut:
	case at == "middle":
		w.Write(answer[:half])
		_ = flush()
		panic(http.ErrAbortHandler)
	case at == "after" && cut: // an event that is whole, and no answer
		w.Write(event(notifications(Fault{}, "")))
		_ = flush()
		panic(http.ErrAbortHandler)
	case at != "after":
		panic(http.ErrAbortHandler)
	}
	if p.answer == nil {
		t.hang(r)
		return
	}
	if p.between != nil {
		half := len(p.answer) / 2
		answer = event(append(append(p.answer[:half:half], p.between...), p.answer[half:]...))
	}
	t.write(w, answer, p)
	for _, message := range p.after {
		t.write(w, event(message), p)
	}
	if p.die != nil {
		_ = flush()
		panic(http.ErrAbortHandler)
	}
}

func event(message []byte) []byte {
	return append(append([]byte("event: message\ndata: "), message...), "\n\n"...)
}

// progress tells how slow gets on; it reports whether the client stayed.
func (t *HTTPStub) progress(w http.ResponseWriter, r *http.Request, m wire.Message) bool {
	ms, steps := slowly(m)
	for i := range steps + 1 {
		select {
		case <-r.Context().Done():
			return false
		case <-time.After(time.Duration(ms) * time.Millisecond / time.Duration(steps+1)):
		}
		if i < steps {
			w.Write(event(step(m.Token(), i+1, steps)))
			_ = http.NewResponseController(w).Flush()
		}
	}
	return true
}

// write writes, in chunks if there are to be any.
func (t *HTTPStub) write(w http.ResponseWriter, text []byte, p plan) {
	if p.chunk == 0 {
		w.Write(text)
		return
	}
	for i := 0; i < len(text); i += p.chunk {
		if _, err := w.Write(text[i:min(i+p.chunk, len(text))]); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		if p.pause > 0 {
			<-time.After(p.pause)
		}
	}
}

// web does what only HTTP can do; it reports whether that was the answer.
func (t *HTTPStub) web(w http.ResponseWriter, r *http.Request, m wire.Message, d Fault) bool {
	switch d.Kind {
	case "status":
		if d.RetryAfter != "" {
			w.Header().Set("Retry-After", d.RetryAfter)
		}
		text := d.Text
		if text == "" {
			text = "<html><body><h1>as asked for</h1></body></html>"
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(d.Code)
		fmt.Fprint(w, text)
	case "session":
		t.DropSessions(d.Code)
		t.state.Lock()
		status := t.lost
		t.state.Unlock()
		t.strange(w, m, status)
	case "reset":
		reset(w)
	case "redirect":
		to := d.Text
		if to == "" {
			to = circlePath
		}
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	default:
		return false
	}
	return true
}

// reset ends the connection with a RST.
func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (t *HTTPStub) mute(d Fault) {
	t.state.Lock()
	defer t.state.Unlock()
	t.muted = time.Now().Add(time.Duration(d.Duration))
	if d.Duration == 0 {
		t.muted = time.Now().AddDate(1, 0, 0)
	}
}

func (t *HTTPStub) isMute() bool {
	t.state.Lock()
	defer t.state.Unlock()
	return time.Now().Before(t.muted)
}
