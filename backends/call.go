package backends

import (
	"errors"
	"sync/atomic"
	"time"

	"mcpgateway/backends/internal/limiter"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A queuedCall is a call of a client on its way to a backend, from NewCall to its response. At any
// time it belongs to one goroutine, to one callQueue, or to the table of calls of a Peer. The owner
// passes it on, or ends it by complete.
type queuedCall struct {
	peer.Call                         // its Handler is the queuedCall
	request   contract.BackendRequest // its Message is zero while it cannot be sent again
	handler   contract.CallHandler
	set       *Set
	name      string   // of the backend
	b         *Backend // backend to which the call goes; nil before Send
	// queue in which the call was last; nil = the call was never queued
	queue        atomic.Pointer[callQueue]
	slot         *limiter.Slot // slot of b.limiter
	firstSlot    limiter.Slot  // target of slot until the call is redirected
	subscription *subscriptionRequest
	sentOver     atomic.Pointer[link] // link over which the call was last sent; nil = not sent
	modern       bool                 // the call was last sent to a modern server
	isRetry      bool                 // the call is sent a second time
	// the call is not rerouted: see link.belongsElsewhere
	staysOnConn bool
}

// A subscriptionRequest is the additional state of a resources/subscribe or resources/unsubscribe.
type subscriptionRequest struct {
	uri  string
	ends bool // it is a resources/unsubscribe
	// connection that has recorded the subscription, or gets the resources/unsubscribe; nil = none
	conn *backendConn
	// ends a subscribe that waits for a listen; nil = the subscribe has not waited for one
	expiry *time.Timer
}

// newCall returns a call to the backend with this name; see Set.NewCall.
func newCall(s *Set, backend string, r contract.BackendRequest,
	h contract.CallHandler) *queuedCall {
	q := &queuedCall{
		Call:    peer.Call{Token: r.ProgressToken, Name: r.Name, SessionID: r.Session},
		request: r, handler: h, set: s, name: backend,
	}
	q.Handler, q.slot = q, &q.firstSlot
	switch method := r.Message.Method(); method {
	case protocol.MethodResourcesSubscribe, protocol.MethodResourcesUnsubscribe:
		q.subscription = &subscriptionRequest{uri: uriParam(r.Message),
			ends: method == protocol.MethodResourcesUnsubscribe}
	}
	return q
}

// subscribes reports whether the call is a resources/subscribe.
func (q *queuedCall) subscribes() bool { return q.subscription != nil && !q.subscription.ends }

// Send implements contract.BackendCall. A call about which the user has to be asked is not queued,
// so that the user is asked at once, and the call does not occupy a place while the user thinks. A
// call that is not permitted is not queued either, so that its error takes no longer than the error
// for an unknown name, even if the backend is starting or busy.
func (q *queuedCall) Send() {
	b, err := q.set.backendOf(q.name, q.request.Session)
	if err != nil {
		q.fail(err)
		return
	}
	if err := b.check(&q.request); errors.Is(err, contract.ErrForbidden) ||
		isA[*contract.QuestionError](err) {
		q.fail(err)
		return
	}
	b.submit(q)
}

// Cancel implements contract.BackendCall.
func (q *queuedCall) Cancel(params []byte) {
	q.Call.Cancel(params) // ends a call in flight
	if cq := q.queue.Load(); cq != nil && cq.remove(q) {
		q.fail(peer.ErrCancelled)
	}
}

// ServerKey implements contract.BackendCall.
func (q *queuedCall) ServerKey() string {
	if l := q.sentOver.Load(); l != nil {
		return l.conn.b.known.serverKey
	}
	return ""
}

// RelayProgress implements contract.BackendCall.
func (q *queuedCall) RelayProgress(forward func(wire.Message)) (stop func()) {
	return q.Call.RelayProgress(forward).Stop
}

// OnProgress implements peer.ResponseHandler.
func (q *queuedCall) OnProgress(m wire.Message) { q.handler.OnProgress(m) }

// OnResponse implements peer.ResponseHandler: the call has left the table of its Peer.
func (q *queuedCall) OnResponse(m wire.Message, err error) {
	if span := q.request.Span; span != nil {
		span.End(q.ID(), contract.BackendResponse{Message: m, Err: err, Modern: q.modern})
	}
	if !q.sendAgain(&m, err) {
		q.complete(m, err)
	}
}

// complete ends the call. The slot is released before the handler gets the response, and the next
// queued call is sent after that.
func (q *queuedCall) complete(m wire.Message, err error) {
	if err == peer.ErrTimeout {
		err = &contract.TimeoutError{Limit: q.Timeout}
	}
	s := q.subscription
	if s != nil && s.expiry != nil {
		s.expiry.Stop()
	}
	switch {
	case s == nil || s.conn == nil:
	case s.ends:
		s.conn.resubscribeIfWanted(s.uri)
	default:
		s.conn.subscribeDone(q, err == nil && m.Part(wire.PartError) == nil)
	}
	b := q.b
	if why, is := errors.AsType[*oauthclient.LoginError](err); is {
		err = q.loginQuestion(why, err)
	}
	var next *limiter.Queued[*queuedCall]
	if b != nil {
		next = b.limiter.release(q)
	}
	q.handler.OnResponse(contract.BackendResponse{Message: m, Err: err, Modern: q.modern})
	if next != nil {
		b.limiter.slots.SendQueued(next)
	}
}

// loginQuestion returns the question whether the user of the client logs in to the backend, because
// the call failed with err for the reason why. It returns err if there is no page for the login.
func (q *queuedCall) loginQuestion(why *oauthclient.LoginError, err error) error {
	b := q.b
	if b == nil || b.login == nil || q.set.LoginPage == nil || q.request.Session == "" {
		return err
	}
	who := q.set.sessions.principal(q.request.Session)
	url, done, noPage := q.set.LoginPage(q.name, q.request.Session, who, b.login.Authorization)
	if noPage != nil {
		b.log.Warn("no page for a login", "err", noPage)
		return err
	}
	// Somebody may have logged in before the page existed. Missing scopes are different: the
	// backend as a whole then needs no login. A call with the consent does not end its wait, so
	// that it is not sent without end to a server that refuses every login.
	if len(why.Scopes) == 0 && q.request.Consents&contract.LoggedIn == 0 &&
		b.login.needed() == nil {
		b.login.completePages()
	}
	return &contract.QuestionError{Asks: contract.LoggedIn, URL: url, Done: done, Err: why,
		Text: "The server " + q.name + " requires a login. Open the page to log in."}
}

// fail ends a call that was not sent.
func (q *queuedCall) fail(err error) { q.complete(wire.Message{}, err) }

// succeed ends a call that needs not be sent.
func (q *queuedCall) succeed() { q.complete(wire.NewResult("0", emptyObject), nil) }

// refuse ends a call with an error response of the gateway.
func (q *queuedCall) refuse(err *wire.Error) { q.complete(wire.NewErrorResponse("0", err), nil) }

// failAll ends calls that were not sent.
func failAll(calls []*queuedCall, err error) {
	for _, q := range calls {
		q.fail(err)
	}
}

// ignoreOutcome is the handler of a call whose response does not matter.
type ignoreOutcome struct{}

func (ignoreOutcome) OnProgress(wire.Message) {}

func (ignoreOutcome) OnResponse(contract.BackendResponse) {}
