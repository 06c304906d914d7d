package httpserver

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A visit is one request of the stateless era, and a session that lives for it. It
// is the [transport.Conn] that Serve holds: the request is read from it, and what is
// written to it goes to the client as the answer to its POST. It is over once the
// response is written, Close is called or the client is gone, which takes the request
// back: then Read says so, if only by [transport.ErrClosed].
type visit struct {
	door     *Server
	who      principal
	m        wire.Message
	listens  bool            // it is a subscription
	jsonOnly bool            // the client takes no events
	asked    bool            // it has been read; of the goroutine that reads
	gone     <-chan struct{} // closed when the client hangs up
	closed   chan struct{}   // closed when it is over
	held     atomic.Int32    // by how many it is still held: Serve, the HTTP exchange
	body     *body           // in which it came
	name     string          // in logs

	mu       sync.Mutex
	over     bool
	answered bool
	status   int      // of the answer, if nothing was sent before it
	x        *reader  // the exchange; nil when that has ended
	events   [][]byte // that are still to be sent
	waiting  int      // bytes of those, and of the ones that are being sent
	told     int      // what the door knows of waiting
	pile     pile
	sending  int       // bytes of the latter
	moved    time.Time // when the client last took any, or there were none
}

func (d *Server) newVisit(w http.ResponseWriter, r *http.Request, p *posted, who principal) *visit {
	e := &visit{
		door: d, name: newName(), who: who, m: p.m, body: p.body, listens: p.m.Method() == methodListen, jsonOnly: p.takes == takesJSON,
		gone: r.Context().Done(), closed: make(chan struct{}), status: http.StatusOK, x: newReader(w),
	}
	e.pile.hangUp = e.hangUp
	e.held.Store(2)
	return e
}

// maxUnheard is how many bytes may wait for a client that has subscribed and has taken
// nothing for as long as stalled: it is told of what has changed for as long as it likes, and who does
// not take that can look for itself when it comes back.
const (
	maxUnheard = 256 << 10
	stalled    = 5 * time.Second
)

const methodListen = "subscriptions/listen"

// receive has a visit served, if there is room for it.
func (d *Server) receive(e *visit) *refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaitPlaceLocked(e.who)
	const request = "request without a session"
	switch {
	case d.closing:
		return d.ending()
	case !d.rules.Load().knows(e.who):
		return refuseToken()
	case d.visits >= d.o.MaxSessions:
		return d.crowdLocked(request, "Too many requests are open", "max", d.o.MaxSessions).retry(1)
	case d.visitsOf[e.who] >= d.share():
		return d.crowdLocked(request, "Too many requests are open under this token", "max", d.share(), "principal", e.who.String()).retry(1)
	}
	d.visits++
	d.visiting[e] = struct{}{}
	d.visitsOf[e.who]++
	e.body.hold()
	d.serving.Go(func() {
		d.o.ServeStateless(d.ctx, SessionInfo{ID: e.name, Principal: e.who.String(), Stateless: true}, e)
		_ = e.Close()
		e.release()
	})
	return nil
}

// justAfter is how long a request waits for a place when there is none: one is free only
// just after its client has the answer, and that may be the client that comes now.
const justAfter = 20 * time.Millisecond

func (d *Server) awaitPlaceLocked(who principal) {
	full := func() bool { return !d.closing && (d.visits >= d.o.MaxSessions || d.visitsOf[who] >= d.share()) }
	if !full() {
		return
	}
	late := false
	timer := time.AfterFunc(justAfter, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		late = true
		d.left.Broadcast()
	})
	defer timer.Stop()
	for full() && !late {
		d.left.Wait()
	}
}

// share bounds the sessions of one principal, and its visits, so that it leaves room for
// others if there are any.
func (d *Server) share() int {
	if d.rules.Load().tellApart() {
		return (d.o.MaxSessions + 1) / 2
	}
	return d.o.MaxSessions
}

// crowdLocked refuses what there is no room for, and says so in the log, but not each time.
func (d *Server) crowdLocked(what, why string, facts ...any) *refusal {
	if now := time.Now(); now.Sub(d.crowded) > quiet {
		d.crowded = now
		d.log.Warn("no room for a further "+what, facts...)
	}
	return refuse(http.StatusServiceUnavailable, "%s", why)
}

// release lets go of a visit. When both who hold it have, there is room for another.
func (e *visit) release() {
	if e.held.Add(-1) > 0 {
		return
	}
	e.body.release()
	d := e.door
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.left.Broadcast()
	d.visits--
	delete(d.visiting, e)
	if d.visitsOf[e.who]--; d.visitsOf[e.who] == 0 {
		delete(d.visitsOf, e.who)
	}
}

// Read implements transport.Conn. It returns the request, and then nothing until the
// visit is over.
func (e *visit) Read() (wire.Message, wire.ID, error) {
	if !e.asked {
		e.asked = true
		select {
		case <-e.closed:
		case <-e.gone:
		default:
			return e.m, "", nil
		}
		e.door.record(e.m, e.name, errClientGone)
	}
	select {
	case <-e.closed:
	case <-e.gone:
		_ = e.Close()
	}
	return wire.Message{}, "", transport.ErrClosed
}

// errNoQuestions is what comes of a request to a client that answers none.
var errNoQuestions = errors.New("a client of a revision without sessions cannot be asked")

// Write implements transport.Conn. Notifications go on the stream of the one request
// there is, whatever they are about, and its response ends it; the response to any
// other is dropped. It never waits for the client: what that leaves unread is bounded
// by Options.Limit, and for a subscription, which nothing but the client ends, by
// maxUnheard if it takes nothing for a while.
func (e *visit) Write(m wire.Message, _ wire.ID) error {
	e.mu.Lock()
	defer e.unlock()
	switch {
	case e.over:
		return transport.ErrClosed
	case m.Kind() == wire.Request || m.Kind() == wire.Batch:
		return errNoQuestions
	case m.Kind() == wire.Response && m.ID() != e.m.ID(), m.Kind() == wire.Notification && e.jsonOnly:
		return nil
	case e.waiting >= e.door.o.MessageLimit, e.waiting >= maxUnheard && e.listens && time.Since(e.moved) > stalled:
		return transport.ErrFull
	}
	e.addLocked(m.Raw())
	if m.Kind() == wire.Response {
		e.answered, e.status = true, statusOf(m)
		e.endLocked(timeFor(int64(e.waiting)))
	}
	e.x.call()
	return nil
}

// Backlogged reports whether an eighth of what may wait for the client does.
func (e *visit) Backlogged() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.over && e.waiting >= e.door.o.MessageLimit/8
}

// Close implements transport.Conn. A client that is still there is told that there is
// no answer, for which Close does not wait; it has lastWords to take that.
func (e *visit) Close() error {
	e.mu.Lock()
	defer e.unlock()
	e.endLocked(lastWords)
	return nil
}

// hangUp ends the visit, whose client does not read: size bytes wait for it, which is
// more than for any other. They are dropped at once.
func (e *visit) hangUp(size int64) {
	e.door.tellHangUp(e.name, size)
	e.mu.Lock()
	defer e.unlock()
	if e.x == nil {
		return
	}
	e.endLocked(0)
	e.x.hurry(0)
	e.dropLocked()
}

// dropLocked forgets what is not sent.
func (e *visit) dropLocked() { e.events, e.waiting, e.sending = nil, 0, 0 }

// unlock releases mu.
func (e *visit) unlock() {
	delta := e.waiting - e.told
	e.told = e.waiting
	e.mu.Unlock()
	e.door.outbox.add(&e.pile, delta)
}

var unanswered = wire.Errorf(wire.CodeInternalError, "The request has ended without an answer; outcome unknown: the call may have run")

// endLocked ends the visit; what waits for its client has to be taken within
// patience.
func (e *visit) endLocked(patience time.Duration) {
	if e.over {
		return
	}
	e.over = true
	close(e.closed)
	if !e.answered {
		e.addLocked(wire.NewErrorResponse(e.m.ID(), unanswered).Raw())
	}
	e.x.hurry(patience)
	e.x.call()
}

func (e *visit) addLocked(text []byte) {
	if e.waiting == 0 {
		e.moved = time.Now()
	}
	e.events = append(e.events, text)
	e.waiting += cost(text)
}

// exchange sends what is written, until the visit is over or the client is gone. The
// headers are held back until it is known what comes first, for an answer alone can
// be an error that has a status of its own. A result alone is sent as JSON, unless the
// client would rather have events; all else, and what takes its time, is a stream. A client that takes
// JSON alone waits for its answer however long that takes. It reports whether the client was sent all
// of its answer; if not, the caller calls abort.
func (e *visit) exchange(ctx context.Context, takes takes) bool {
	x := e.x
	defer e.leave()
	for wait := true; wait; wait = e.jsonOnly && !e.isOver() {
		if !x.wait(ctx, keepAlive) && !e.isAnswered() {
			return false
		}
	}
	switch answer, status := e.alone(); {
	case answer != nil && (status != http.StatusOK || takes != takesEvents):
		sendJSON(x.w, status, answer)
		return true
	case e.jsonOnly:
		return false // its connection was cut
	}
	beginEvents(x.w)
	return e.pump(ctx, x)
}

func (e *visit) isAnswered() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.answered
}

func (e *visit) isOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.over
}

// alone returns the answer and its status, nil if that is not all there is.
func (e *visit) alone() ([]byte, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over || len(e.events) != 1 { // none: it was hung up on
		return nil, 0
	}
	return e.events[0], e.status
}

// pump sends events until there will be no more, or the client is gone. It reports false for the latter.
func (e *visit) pump(ctx context.Context, x *reader) bool {
	timer := time.NewTimer(keepAlive)
	defer timer.Stop()
	if x.send(nil) != nil { // the headers go out
		return false
	}
	var batch [][]byte
	for more := true; ; timer.Reset(keepAlive) {
		batch, more = e.next(batch)
		switch {
		case len(batch) > 0:
			if x.sendEvents(batch, "", 0) != nil {
				return false
			}
			continue
		case !more:
			return true
		}
		select {
		case <-x.wake:
		case <-timer.C:
			if x.send([]byte(": keep-alive\n\n")) != nil {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// next notes that the batch before was sent, and returns what is to be sent now; more
// says whether there will be any later.
func (e *visit) next(before [][]byte) (batch [][]byte, more bool) {
	clear(before)
	e.mu.Lock()
	defer e.unlock()
	e.waiting -= e.sending
	e.sending = 0
	e.moved = time.Now()
	n := 0
	for ; n < len(e.events) && e.sending < maxBatch; n++ {
		e.sending += cost(e.events[n])
	}
	batch, e.events = e.events[:n:n], e.events[n:]
	return batch, !e.over
}

// leave ends the exchange, and with it the visit.
func (e *visit) leave() {
	e.mu.Lock()
	e.endLocked(0)
	_ = http.NewResponseController(e.x.w).SetWriteDeadline(time.Time{}) // which endLocked has set
	e.x = nil
	e.dropLocked()
	e.unlock()
	e.release()
}
