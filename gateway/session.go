package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A Session is the state of one client connection on stdio, or of one HTTP session.
type Session struct {
	clientConn
	peer     *peer.Peer
	opened   bool // registered with the backends; for the reading goroutine only
	openedAt time.Time

	tasks           sessionTasks   // tasks of the client at backends
	clientTasks     recentIDs      // ids of tasks at the client, created for backends
	urlElicitations recentIDs      // ids of URL elicitations sent to the client
	links           links          // resource URIs in the client's results
	delayedUpdates  delayedUpdates // held back while the client is backlogged

	lifecycle lifecycle
	lists     clientLists
	minLevel  atomic.Int32 // severity of the lowest log level to forward; 0 = all
	calls     callTracker
}

// newSession returns a session without a peer.
func newSession(g *Gateway, id string, p *principal.Principal, t ClientTransport) *Session {
	if id == "" {
		id = newID()
	}
	return &Session{clientConn: clientConn{g: g, id: id, principal: p, transport: t,
		work: newWorkGroup()}}
}

func (s *Session) peerOptions() peer.Options {
	return peer.Options{
		Log:           s.log,
		MaxInFlight:   s.g.MaxInFlight,
		AllowBatches:  func() bool { return s.lifecycle.handshake().Revision.Batches },
		RejectInBatch: protocol.RejectInBatch,
		PassPing:      protocol.IsModern,
		OnRejected:    s.recordRejected,
		CloseError:    s.closeError,
	}
}

// newID returns a random id.
func newID() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

// shutdownGrace bounds the grace period if the gateway shuts down while the session is already
// closing: a client that has closed stdin sends SIGTERM, and SIGKILL soon after that.
const shutdownGrace = 500 * time.Millisecond

// Receive handles a message of the client in a session begun by [Gateway.Open]. It must be called
// with one message at a time, in order of arrival. It does not block.
func (s *Session) Receive(m wire.Message) { s.peer.Receive(m) }

// Shutdown ends the session when the gateway shuts down: it waits a grace period for calls in
// flight, then closes the Conn. Receive may be called during the grace period.
func (s *Session) Shutdown() {
	s.stopped.Store(true)
	grace := s.g.DrainTimeout
	if s.lifecycle.current() == closing {
		grace = min(grace, shutdownGrace)
	}
	s.closeWithGrace(grace)
}

// Closed releases a session begun by [Gateway.Open]. It must be called after the Conn was closed
// and the last call of Receive has returned. The reason is the cause of the end; nil if the client
// or the session closed the Conn.
func (s *Session) Closed(reason error) {
	s.peer.Disconnected()
	s.closeWithGrace(0)
	s.cleanUp(reason)
}

// cleanUp waits for the session's goroutines and removes the session. The reason is the cause of
// the session's end; nil if the client ended the session.
func (s *Session) cleanUp(reason error) {
	s.work.close()
	s.tasks.endAll()
	s.clients.releaseAll()
	if s.opened {
		attrs := []any{"client", s.lifecycle.handshake().Name,
			"dur", time.Since(s.openedAt).Round(time.Millisecond)}
		if s.stopped.Load() {
			reason = errors.New("the gateway is ending")
		}
		if reason != nil {
			attrs = append(attrs, "err", reason)
		}
		s.log().Info("client disconnected", attrs...)
		s.g.Backends.CloseSession(s.id)
	}
	s.g.sessions.remove(s)
}

func (s *Session) closeError() *wire.Error {
	if s.stopped.Load() {
		return errGatewayStopped
	}
	return errSessionEnding
}

// closeWithGrace closes the session: it rejects further requests, ends the subscriptions, waits up
// to grace for requests in flight, then closes the connection. Of two concurrent calls, the one
// with the shorter grace closes the connection.
func (s *Session) closeWithGrace(grace time.Duration) {
	s.serveQueued(s.lifecycle.close())
	s.finishListens()
	s.g.grace.wait(s.work.ctx, grace, s.peer.DrainRequests)
	s.peer.Close()
	s.work.cancel()
}

// fail responds to a request with an error and audits the call as rejected, or as cancelled if the
// client cancelled the request first.
func (s *Session) fail(r *peer.Request, err *wire.Error) {
	s.recordCall(r.Message, rejection(r, err))
}

// recordRejected audits a call that was rejected before it was sent.
func (s *Session) recordRejected(m wire.Message, err *wire.Error) {
	s.recordCall(m, errorOutcome(Rejected, err))
}

// traced describes the client of the session.
func (s *Session) traced() TracedClient {
	revision := s.lifecycle.handshake().Revision.Date
	return TracedClient{Session: s.id, Revision: revision, HTTP: s.transport != Stdio}
}

func (s *Session) recordCall(m wire.Message, o Outcome) {
	s.g.record(s.traced(), s.id, s.lifecycle.handshake().Name, s.principal, m, o)
}
