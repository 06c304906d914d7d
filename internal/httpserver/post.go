package httpserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// post answers a POST to /mcp, each in the era that it is of itself.
func (d *Server) post(w http.ResponseWriter, r *http.Request, who principal) {
	takes, no := checkMedia(r)
	if no != nil {
		d.refuse(w, r, no)
		return
	}
	key := r.Header.Get(sessionHeader)
	s := d.find(key, who, false)
	modern := asStateless(r, s != nil)
	p, no := d.read(w, r, s != nil || modern, d.holderOf(who, s))
	defer p.body.release()
	p.takes = takes
	switch {
	case no != nil:
	case modern || protocol.IsModern(p.m):
		d.stateless(w, r, p, who)
		return
	case p.hello && key == "":
		d.hello(w, r, p, who)
		return
	case p.m.Method() == "server/discover" && key == "":
		// A client that has lost its header: it falls back.
		no = refuse(http.StatusNotFound, "Method not found: server/discover").code(wire.CodeMethodNotFound)
	case key == "":
		no = needsSession()
	case s == nil:
		no = noSession()
	default:
		if no = checkVersion(r); no == nil {
			if !s.exchange(w, r, p, quick) {
				abort()
			}
			return
		}
	}
	name := ""
	if s != nil {
		name = s.name
	}
	d.refusePosted(w, r, p, name, no)
}

const sessionHeader = "Mcp-Session-Id"

// hello answers the initialize that opens a session. If the answer is an error,
// or does not arrive, there is no session.
func (d *Server) hello(w http.ResponseWriter, r *http.Request, p *posted, who principal) {
	s := d.newSession(who)
	if no := d.open(s); no != nil {
		d.refusePosted(w, r, p, "", no)
		return
	}
	w.Header().Set(sessionHeader, s.key)
	sent := s.exchange(w, r, p, keepAlive)
	if !sent || !s.agreed() {
		s.end(errUnheard)
	}
	if !sent {
		abort()
	}
}

var errUnheard = errors.New("the client has not got the answer to initialize")

// abort closes the connection of an exchange whose client does not get its answer. If the exchange
// returned instead, net/http would send an empty response with the status 200, or end a stream as if
// it was complete: a client that has closed only its sending side would take that for the answer.
func abort() { panic(http.ErrAbortHandler) }

func (s *session) agreed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision != ""
}

// quick is how long an answer may take before a stream of events is opened for
// it.
const quick = 200 * time.Millisecond

// exchange takes what was posted to where it is read, and the answer back. It
// reports whether the client was sent all of its answer; if not, the caller calls abort.
func (s *session) exchange(w http.ResponseWriter, r *http.Request, p *posted, patience time.Duration) bool {
	st, x, no := s.enter(w, p)
	if no != nil {
		if p.hello {
			w.Header().Del(sessionHeader)
		}
		s.door.refusePosted(w, r, p, s.name, no)
		return true
	}
	if err := s.deliver(r.Context(), p, st); err != nil {
		s.takenBack(p.ids)
		s.leave(st, x)
		return s.undelivered(w, r, p, err)
	}
	if st == nil {
		s.leave(nil, nil)
		w.WriteHeader(http.StatusAccepted)
		return true
	}
	return s.answer(w, r, p, st, x, patience)
}

// enter registers what was posted under its requests' ids.
func (s *session) enter(w http.ResponseWriter, p *posted) (*stream, *reader, *refusal) {
	s.mu.Lock()
	defer s.unlock()
	if s.door.ctx.Err() != nil && len(p.ids) > 0 {
		return nil, nil, s.door.ending()
	}
	if p.m.Kind() == wire.Batch && !s.traitsLocked().Batches {
		return nil, nil, refuse(http.StatusBadRequest, "Batch requests not supported")
	}
	for _, id := range p.ids {
		if s.open[id] != nil {
			return nil, nil, refuse(http.StatusBadRequest, "Invalid request: a request with this id is in flight")
		}
	}
	if len(p.ids) > 0 && len(s.open)+len(p.ids) > maxOpen {
		return nil, nil, refuse(http.StatusTooManyRequests, "Too many requests of this session are open").retry(1)
	}
	if no := s.arriveLocked(); no != nil {
		return nil, nil, no
	}
	if p.hello && s.revision == "" {
		s.hello = p.m.ID()
	}
	if s.legacy {
		for _, id := range p.ids {
			s.holdLocked(id, p.body)
		}
	}
	if len(p.ids) == 0 || s.legacy {
		return nil, nil, nil
	}
	st, x := newStream(), newReader(w)
	st.owed = p.ids
	st.jsonOnly = p.takes == takesJSON
	st.reader = x
	st.body = p.body
	st.body.hold()
	if s.open == nil {
		s.open = make(map[wire.ID]*stream)
	}
	for _, id := range p.ids {
		s.open[id] = st
	}
	return st, x, nil
}

// leave ends an exchange, which may have had a stream.
func (s *session) leave(st *stream, x *reader) {
	s.mu.Lock()
	defer s.unlock()
	s.busy--
	s.since = time.Now()
	if st != nil {
		s.detachLocked(st, x)
	}
}

// undelivered ends the exchange of a request that was not delivered. It reports whether the client
// was sent an answer.
func (s *session) undelivered(w http.ResponseWriter, r *http.Request, p *posted, err error) bool {
	if err == transport.ErrClosed {
		s.gone(w, r, p)
		return true
	}
	s.door.record(p.m, s.name, errClientGone)
	return false
}

// errClientGone is recorded for a request whose client is gone before the request is delivered.
var errClientGone = wire.Errorf(wire.CodeInternalError, "The client has closed the connection; the request did not run")

// gone answers a request whose session has ended.
func (s *session) gone(w http.ResponseWriter, r *http.Request, p *posted) {
	no := noSession()
	if s.door.ctx.Err() != nil {
		no = s.door.ending()
	}
	w.Header().Del(sessionHeader)
	s.door.refusePosted(w, r, p, s.name, no)
}

// answer waits for what the client gets. The headers are held back until it is
// known what kind of answer it is: one response alone is sent as JSON, unless the
// client would rather have events.
func (s *session) answer(w http.ResponseWriter, r *http.Request, p *posted, st *stream, x *reader, patience time.Duration) bool {
	for wait := true; wait; wait = st.jsonOnly && !s.isDone(st) {
		if !x.wait(r.Context(), patience) && !s.isDone(st) {
			s.leave(st, x)
			return false
		}
		patience = keepAlive
	}
	text, prime, form := s.first(st, p.takes == takesEvents)
	switch form {
	case asNothing:
		s.gone(w, r, p)
		s.leave(st, x)
	case asAccepted:
		w.WriteHeader(http.StatusAccepted)
		s.leave(st, x)
	case asJSON:
		if p.hello && !s.agreed() {
			w.Header().Del(sessionHeader)
		}
		sendJSON(w, http.StatusOK, text)
		s.leave(st, x)
	case asEvents:
		beginEvents(w)
		return s.pump(r.Context(), st, x, prime)
	}
	return true
}

// wait waits until the stream has to be looked at, or until patience is over. It
// reports whether the client is still there.
func (x *reader) wait(ctx context.Context, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-x.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// isDone reports whether a stream has all that it will have.
func (s *session) isDone(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.done
}

type form int

const (
	asNothing  form = iota // the session ended before there was an answer
	asAccepted             // the client has taken the request back, and takes no events
	asJSON
	asEvents
)

// first decides how a POST is answered. A stream of events has a number from
// here on; prime says from which event it can be resumed, "" if that is not said.
func (s *session) first(st *stream, events bool) (text []byte, prime string, how form) {
	s.mu.Lock()
	defer s.unlock()
	switch {
	case len(st.events) == 1 && st.done && st.answered && !events:
		return st.events[0], "", asJSON
	case len(st.events) == 0 && s.over:
		return nil, "", asNothing
	case len(st.events) == 0 && st.jsonOnly:
		return nil, "", asAccepted
	}
	if s.over { // it was not given a number in time, and cannot be resumed
		return nil, "", asEvents
	}
	s.numberLocked(st)
	if s.traitsLocked().PrimingEvents && (!st.done || len(st.events) > 0) {
		st.known = true
		prime = eventID(st.number, 0)
	}
	return nil, prime, asEvents
}
