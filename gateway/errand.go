package gateway

import (
	"container/list"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An errand is what a backend is doing for a call of a guest's. The request that
// waits for it may come and go: a backend of the session era that asks something in
// mid-call is not answered until the client comes back with the answers, in a new
// request. Until then the errand is parked (parked.go).
//
//	call.send ─ errand ─ Backends.Send
//	guest.asked ─ errand.ask ─ the call is answered: input_required, and a ticket
//	   call.goOn (a retry with the ticket) ─ errand.resume ─ query.answer
//	errand.Done ─ call.Done, of the request that waits; or it is kept for the next
//
// Each errand ends once, be it by the backend's answer, by the client, who hangs up,
// or because nobody comes back; and no call is ever run a second time for that.
type errand struct {
	g       *Gateway
	guest   *guest
	place   *list.Element // among the guest's
	id      string
	task    bool // a place for a task is kept for it
	asTask  bool // it was asked for one
	route   catalog.Route
	pending peer.Call

	mu     sync.Mutex
	call   *call       // that waits for it; nil = it is parked, or over
	asked  []*query    // not answered yet, the oldest first
	keys   int         // how many queries there were
	timer  *time.Timer // gathers queries, or gives up on the client; nil if neither
	answer *result     // that came while it was parked
	stored int         // bytes of it, for which there was room
	over   bool
}

// result is what came back from a backend.
type result struct {
	m   wire.Message
	err error
}

// A query is a question of a backend's to a guest, until it is answered.
type query struct {
	e       *errand
	r       *peer.Request
	key     string // by which the client knows it
	certain bool   // that it is this errand's, and not another one's of the guest; or it was moved
}

const (
	// gathering is how long it is waited for further questions after the first.
	gathering = 20 * time.Millisecond
	// maxQueries bounds the questions of one errand that are not answered.
	maxQueries = maxQuestions
)

// queryKey returns the key of the nth question of a call.
func queryKey(n int) string { return "q" + strconv.Itoa(n) }

func isQueryKey(key string) bool {
	n, ok := strings.CutPrefix(key, "q")
	_, err := strconv.Atoi(n)
	return ok && err == nil
}

// depart has the call carried out as an errand, if it may take several rounds.
func (c *call) depart() {
	if !c.road.rounds {
		return
	}
	e := &errand{g: c.s.g, guest: c.guest, id: newID(), route: c.Route, call: c, task: c.task, asTask: c.asTask}
	e.pending.Handler, e.pending.Tag, e.pending.Token, e.pending.SessionID = e, e, c.pending.Token, c.pending.SessionID
	e.pending.RemoteName = c.pending.RemoteName
	if c.round.goesOn() {
		e.pending.IsContinuation, e.pending.ServerKey = true, c.round.program
	}
	c.pending, c.errand = &e.pending, e
	c.guest.stayOn()
	c.guest.enter(e)
}

// waiting returns the call that waits for the errand, nil if none does.
func (e *errand) waiting() *call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.call
}

// Progressed implements peer.ResponseHandler: progress goes to whoever waits now, under the
// token that it has given.
func (e *errand) OnProgress(m wire.Message) {
	if c := e.waiting(); c != nil {
		if token := c.r.Token(); token != "" && !c.s.isCrowded(e.route.Backend) {
			c.r.Notify(protocol.StripMeta(m).Splice(wire.Edit{Part: wire.PartToken, Text: []byte(token)}))
		}
	}
}

// Done implements peer.ResponseHandler.
func (e *errand) OnResponse(m wire.Message, err error) {
	e.mu.Lock()
	if e.over {
		e.mu.Unlock()
		return
	}
	c, asked := e.call, e.asked
	e.asked = nil
	if c == nil {
		e.keepLocked(m, err) // the client hears of it when it comes back
	} else {
		e.endLocked()
	}
	e.mu.Unlock()
	for _, q := range asked {
		q.move()
	}
	if c != nil {
		c.OnResponse(m, err)
		e.gone()
	}
}

var errNoRoom = errors.New("it has answered, and there was no room to keep that until the client came back")

// keepLocked keeps what came back while nobody waits for it. All that is kept together is
// bounded, with the outcomes of tasks; beyond it only that there was an answer.
func (e *errand) keepLocked(m wire.Message, err error) {
	size := len(m.Raw())
	if !e.g.stored.keep(size) {
		m, err, size = wire.Message{}, &transport.CallLostError{Err: errNoRoom, MayHaveRun: true}, 0
	}
	e.answer, e.stored = &result{m, err}, size
}

// endLocked ends the errand; gone has to follow when mu is free.
func (e *errand) endLocked() {
	e.g.stored.release(e.stored)
	e.over, e.call, e.answer, e.stored = true, nil, nil, 0
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

func (e *errand) gone() {
	e.unbook()
	e.g.parked.remove(e)
	e.guest.exit(e)
	e.guest.leave()
}

// rank says how likely it is that something is of this errand which does not say so: more
// if a request waits for it, most if nothing is asked on its behalf yet; 0 = the backend
// is not at it any more.
func (e *errand) rank() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.over, e.answer != nil:
		return 0
	case e.call == nil:
		return 1
	case len(e.asked) > 0:
		return 2
	}
	return 3
}

// ask takes a question of the backend's. Certain says that it is this errand's.
func (e *errand) ask(r *peer.Request, certain bool) {
	if err := mayAsk(e.guest.stamp.Capabilities, r.Message); err != nil {
		e.refuse(r, err)
		return
	}
	q := &query{e: e, r: r, certain: certain}
	e.mu.Lock()
	e.keys++
	q.key = queryKey(e.keys)
	ok := !e.over && e.answer == nil && len(e.asked) < maxQueries
	if ok {
		e.pending.PauseTimeout()
		e.asked = append(e.asked, q)
		if e.call != nil && e.timer == nil {
			e.timer = time.AfterFunc(gathering, e.park)
		}
	}
	e.mu.Unlock()
	switch {
	case !ok:
		r.Fail(wire.Errorf(wire.CodeInternalError, "The client cannot be asked this any more, or not that much at one time"))
	case !r.OnCancel(q):
		q.drop() // the backend is gone
	}
}

// refuse answers a question that the client has not declared to be able to answer. The
// call fails with that, for so would the client's own server have it, and is taken
// back.
func (e *errand) refuse(r *peer.Request, why *wire.Error) {
	decline(r, why)
	var s shortfall
	s.add(e.guest.stamp.Capabilities, r.Message)
	e.mu.Lock()
	c := e.call
	if e.over || c == nil || s.none() {
		e.mu.Unlock()
		return
	}
	asked := e.asked
	e.asked = nil
	e.endLocked()
	e.mu.Unlock()
	for _, q := range asked {
		q.refuse()
	}
	e.g.Backends.Cancel(e.route.Backend, &e.pending, nil)
	failure := s.failure(e.route.Backend)
	if c.r.Fail(failure) {
		c.ended(Outcome{Kind: RPCError, Code: failure.Code})
	}
	e.gone()
}

// leave ends the errand because the request c, which waited for it, is taken back, or
// its client is gone.
func (e *errand) leave(c *call, params []byte) {
	e.mu.Lock()
	if e.over || e.call != c {
		e.mu.Unlock()
		return
	}
	e.finishLocked(params)
}

// abandon ends the errand for a reason of ours.
func (e *errand) abandon(why string) {
	e.mu.Lock()
	if e.over {
		e.mu.Unlock()
		return
	}
	c := e.call
	e.finishLocked(because(why))
	failure := wire.Errorf(wire.CodeInternalError, "backend %s: %s; outcome unknown: the call may have run", e.route.Backend, why)
	if c != nil && c.r.Fail(failure) {
		c.ended(unanswered(BackendLost, failure))
	}
}

// because returns the params of a cancellation of ours.
func because(why string) []byte {
	return wire.Encode(map[string]any{"requestId": 0, "reason": why}) // the id is put in by the peer
}

// finishLocked ends the errand, and what the backend is doing for it. It unlocks mu.
func (e *errand) finishLocked(params []byte) {
	asked, answered := e.asked, e.answer != nil
	e.asked = nil
	e.endLocked()
	e.mu.Unlock()
	for _, q := range asked {
		q.move()
	}
	if !answered {
		e.g.Backends.Cancel(e.route.Backend, &e.pending, params)
	}
	e.gone()
}

// take removes the query from those that are open, for whoever gets true.
func (q *query) take() bool {
	q.e.mu.Lock()
	defer q.e.mu.Unlock()
	i := slices.Index(q.e.asked, q)
	if i < 0 {
		return false
	}
	q.e.asked = slices.Delete(q.e.asked, i, i+1)
	return true
}

// Cancelled implements peer.CancelHandler: the backend has taken the question back.
func (q *query) HandleCancel([]byte) { q.drop() }

func (q *query) drop() {
	if q.take() {
		q.e.pending.ResumeTimeout()
	}
}

// reply and refuse answer a query that was taken.
func (q *query) reply(result []byte) {
	q.r.Reply(result)
	q.e.pending.ResumeTimeout()
}

func (q *query) refuse() {
	decline(q.r, wire.Errorf(wire.CodeInternalError, "The client has not answered, and the call is over"))
	q.e.pending.ResumeTimeout()
}

// move finds another errand for a query whose own is over, if it may have been another's
// all along: a connection that has one stream for everything does not tell.
func (q *query) move() {
	if q.certain {
		q.refuse()
		return
	}
	q.e.pending.ResumeTimeout()
	if e, _ := q.e.guest.cause(q.e.route.Backend, peer.Origin{}); e != nil && e != q.e {
		e.ask(q.r, true) // it stays there: of many that end each would move all that were moved to it
		return
	}
	decline(q.r, wire.Errorf(wire.CodeInternalError, "The call is over"))
}

// decline answers a question in the client's place: what a person is asked is
// cancelled, "the user dismissed without making an explicit choice" (elicitation,
// response actions); for the rest there is an error. It reports whether the question was still open.
func decline(r *peer.Request, why *wire.Error) bool {
	if r.Method() == "elicitation/create" {
		return r.Reply([]byte(`{"action":"cancel"}`))
	}
	return r.Fail(why)
}
