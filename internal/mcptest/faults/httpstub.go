package faults

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

// An HTTPStub is the stub over streamable HTTP, at any path. The script determines its generation.
// Requests without a response end when the client disconnects or Close is called.
type HTTPStub struct {
	*server
	closed chan struct{}
	once   sync.Once

	stateMu    sync.Mutex
	sessions   map[string]bool
	lostStatus int     // HTTP status for unknown sessions
	nextFaults []Fault // faults for the next POSTs
	mutedUntil time.Time
}

// NewHTTPStub returns an HTTPStub.
func NewHTTPStub(s Script) *HTTPStub {
	return &HTTPStub{
		server: newServer(s, 0), closed: make(chan struct{}),
		sessions: make(map[string]bool), lostStatus: http.StatusNotFound,
	}
}

// Close ends all blocked requests.
func (h *HTTPStub) Close() { h.once.Do(func() { close(h.closed) }) }

// FailNext applies a fault to each of the next n POSTs.
func (h *HTTPStub) FailNext(f Fault, n int) {
	h.stateMu.Lock()
	defer h.stateMu.Unlock()
	for range n {
		h.nextFaults = append(h.nextFaults, f)
	}
}

// DropSessions drops all sessions. From then on, requests of unknown sessions get this status: 404,
// 400, or 200, with an error in the body; 0 = 404.
func (h *HTTPStub) DropSessions(status int) {
	h.stateMu.Lock()
	defer h.stateMu.Unlock()
	clear(h.sessions)
	if h.lostStatus = status; status == 0 {
		h.lostStatus = http.StatusNotFound
	}
}

// SessionCount returns the number of open sessions.
func (h *HTTPStub) SessionCount() int {
	h.stateMu.Lock()
	defer h.stateMu.Unlock()
	return len(h.sessions)
}

const (
	sessionHeader    = "Mcp-Session-Id"
	redirectLoopPath = "/circle" // redirects to itself
	jsonType         = "application/json"
	eventsType       = "text/event-stream"
)

// ServeHTTP implements http.Handler.
func (h *HTTPStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, redirectLoopPath):
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	case r.Method == http.MethodPost:
		h.servePost(w, r)
	case r.Method == http.MethodGet && !h.NoGet && h.Generation != "modern":
		h.serveGet(w, r)
	case r.Method == http.MethodDelete && h.Generation != "modern":
		h.stateMu.Lock()
		delete(h.sessions, r.Header.Get(sessionHeader))
		h.stateMu.Unlock()
	default:
		w.Header().Set("Allow", "POST")
		http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
	}
}

// serveGet opens a standalone stream without events.
func (h *HTTPStub) serveGet(w http.ResponseWriter, r *http.Request) {
	if status := h.checkSession(r, nil); status != 0 {
		http.Error(w, "no such session", status)
		return
	}
	w.Header().Set("Content-Type", eventsType)
	_ = http.NewResponseController(w).Flush()
	h.waitDisconnect(r)
}

// waitDisconnect waits until the client disconnects or Close is called.
func (h *HTTPStub) waitDisconnect(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-h.closed:
	}
}

func (h *HTTPStub) servePost(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m, err := wire.Parse(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	faults := append(h.dueFaults(m.Method()), h.takeNextFault()...)
	if m.Method() == "tools/call" && m.Name() == "do" {
		requested, err := requestedFaults(m.Part(wire.PartArguments))
		if err != nil {
			w.Header().Set("Content-Type", jsonType)
			w.Write(wire.NewErrorResponse(m.ID(),
				wire.Errorf(wire.CodeInvalidParams, "%v", err)).Raw())
			return
		}
		faults = append(faults, requested...)
	}
	p := h.plan(m, faults, "")
	if p.die != nil && p.die.At == "reading" {
		resetConn(w)
		return
	}
	if status := h.checkSession(r, &m); status != 0 {
		h.writeSessionNotFound(w, m, status)
		return
	}
	if m.Method() == "tools/call" && m.Name() == "slow" && !h.sendsProgress(m) {
		ms, _ := slowArguments(m)
		p.delay += time.Duration(ms) * time.Millisecond
	}
	h.respond(w, r, m, p)
}

// takeNextFault returns the next fault of FailNext, if there is one.
func (h *HTTPStub) takeNextFault() (faults []Fault) {
	h.stateMu.Lock()
	defer h.stateMu.Unlock()
	if len(h.nextFaults) > 0 {
		faults, h.nextFaults = h.nextFaults[:1:1], h.nextFaults[1:]
	}
	return faults
}

// checkSession returns the status for a missing or unknown session; 0 = the session is valid or not
// needed.
func (h *HTTPStub) checkSession(r *http.Request, m *wire.Message) int {
	if m != nil && (isModern(*m) || m.Method() == "initialize" || m.Method() == "server/discover") {
		return 0
	}
	key := r.Header.Get(sessionHeader)
	h.stateMu.Lock()
	defer h.stateMu.Unlock()
	switch {
	case h.sessions[key], h.Generation == "modern" && key == "":
		return 0
	case key == "":
		return http.StatusBadRequest
	}
	return h.lostStatus
}

// writeSessionNotFound responds to a request of an unknown session.
func (h *HTTPStub) writeSessionNotFound(w http.ResponseWriter, m wire.Message, status int) {
	id := m.ID()
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	w.Write(wire.NewErrorResponse(id,
		wire.Errorf(wire.CodeInvalidRequest, "Session not found")).Raw())
}

// sendsProgress reports whether a call of slow reports progress, which requires a stream.
func (h *HTTPStub) sendsProgress(m wire.Message) bool {
	_, steps := slowArguments(m)
	return steps > 0 && m.Token() != ""
}

// respond executes a plan.
func (h *HTTPStub) respond(w http.ResponseWriter, r *http.Request, m wire.Message, p responsePlan) {
	if p.delay > 0 {
		select {
		case <-time.After(p.delay):
		case <-r.Context().Done():
			return
		}
	}
	if p.mute != nil {
		h.mute(*p.mute)
	}
	if p.httpFault != nil && h.applyHTTPFault(w, r, m, *p.httpFault) {
		return
	}
	switch {
	case m.Kind() != wire.Request:
		w.WriteHeader(http.StatusAccepted)
		return
	case h.isMuted(), p.response == nil && len(p.before) == 0:
		h.waitDisconnect(r)
		return
	}
	if m.Method() == "initialize" && h.Generation != "modern" {
		key := rand.Text()
		h.stateMu.Lock()
		h.sessions[key] = true
		h.stateMu.Unlock()
		w.Header().Set(sessionHeader, key)
	}
	if h.needsStream(m, p) {
		h.writeStream(w, r, m, p)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	if p.contentType != "" {
		w.Header().Set("Content-Type", p.contentType)
	}
	h.writeChunks(w, p.response, p)
}

// needsStream reports whether a response needs an event stream.
func (h *HTTPStub) needsStream(m wire.Message, p responsePlan) bool {
	return h.AlwaysStream || len(p.before)+len(p.after)+len(p.between) > 0 ||
		p.die != nil || p.response == nil ||
		p.httpFault != nil && p.httpFault.Kind == "cut" ||
		m.Method() == "tools/call" && m.Name() == "slow" && h.sendsProgress(m)
}

// writeStream writes a response as an event stream.
func (h *HTTPStub) writeStream(
	w http.ResponseWriter, r *http.Request, m wire.Message, p responsePlan,
) {
	w.Header().Set("Content-Type", eventsType)
	if p.contentType != "" {
		w.Header().Set("Content-Type", p.contentType)
	}
	flush := http.NewResponseController(w).Flush
	_ = flush()
	if h.sendsProgress(m) && m.Name() == "slow" && !h.writeProgress(w, r, m) {
		return
	}
	for _, message := range p.before {
		h.writeChunks(w, formatEvent(message), p)
	}
	_ = flush()
	at, cut := "", p.httpFault != nil && p.httpFault.Kind == "cut"
	switch {
	case p.die != nil:
		at = p.die.At
	case cut:
		at = p.httpFault.At
	}
	response := formatEvent(p.response)
	switch half := len(response) / 2; {
	case p.die == nil && !cut:
	case at == "middle":
		w.Write(response[:half])
		_ = flush()
		panic(http.ErrAbortHandler)
	case at == "after" && cut: // a complete event, but not the response
		w.Write(formatEvent(notification(Fault{}, "")))
		_ = flush()
		panic(http.ErrAbortHandler)
	case at != "after":
		panic(http.ErrAbortHandler)
	}
	if p.response == nil {
		h.waitDisconnect(r)
		return
	}
	if p.between != nil {
		half := len(p.response) / 2
		response = formatEvent(slices.Concat(p.response[:half], p.between, p.response[half:]))
	}
	h.writeChunks(w, response, p)
	for _, message := range p.after {
		h.writeChunks(w, formatEvent(message), p)
	}
	if p.die != nil {
		_ = flush()
		panic(http.ErrAbortHandler)
	}
}

func formatEvent(message []byte) []byte {
	return append(append([]byte("event: message\ndata: "), message...), "\n\n"...)
}

// writeProgress waits and reports progress for slow. It returns false if the client disconnected.
func (h *HTTPStub) writeProgress(w http.ResponseWriter, r *http.Request, m wire.Message) bool {
	ms, steps := slowArguments(m)
	for i := range steps + 1 {
		select {
		case <-r.Context().Done():
			return false
		case <-time.After(time.Duration(ms) * time.Millisecond / time.Duration(steps+1)):
		}
		if i < steps {
			w.Write(formatEvent(progressNotification(m.Token(), i+1, steps)))
			_ = http.NewResponseController(w).Flush()
		}
	}
	return true
}

// writeChunks writes text, in chunks if the plan requires it.
func (h *HTTPStub) writeChunks(w http.ResponseWriter, text []byte, p responsePlan) {
	if p.chunkSize == 0 {
		w.Write(text)
		return
	}
	for i := 0; i < len(text); i += p.chunkSize {
		if _, err := w.Write(text[i:min(i+p.chunkSize, len(text))]); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		if p.chunkPause > 0 {
			<-time.After(p.chunkPause)
		}
	}
}

// applyHTTPFault applies a fault of HTTPKinds. It returns true if the fault replaces the response.
func (h *HTTPStub) applyHTTPFault(
	w http.ResponseWriter, r *http.Request, m wire.Message, f Fault,
) bool {
	switch f.Kind {
	case "status":
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		text := f.Text
		if text == "" {
			text = "<html><body><h1>as asked for</h1></body></html>"
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(f.Code)
		fmt.Fprint(w, text)
	case "session":
		h.DropSessions(f.Code)
		h.stateMu.Lock()
		status := h.lostStatus
		h.stateMu.Unlock()
		h.writeSessionNotFound(w, m, status)
	case "reset":
		resetConn(w)
	case "redirect":
		to := f.Text
		if to == "" {
			to = redirectLoopPath
		}
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	default:
		return false
	}
	return true
}

// resetConn closes the connection with a TCP RST.
func resetConn(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (h *HTTPStub) mute(f Fault) {
	h.stateMu.Lock()
	defer h.stateMu.Unlock()
	h.mutedUntil = time.Now().Add(time.Duration(f.Duration))
	if f.Duration == 0 {
		h.mutedUntil = time.Now().AddDate(1, 0, 0)
	}
}

func (h *HTTPStub) isMuted() bool {
	h.stateMu.Lock()
	defer h.stateMu.Unlock()
	return time.Now().Before(h.mutedUntil)
}
