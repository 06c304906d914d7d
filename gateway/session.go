package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/peer"
	"mcpgateway/revision"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// A Caller is who a session is with: plain facts, gathered at the handshake.
type Caller struct {
	Revision revision.Traits
	Name     string // name/version
}

// A Session is one client's conversation.
type Session struct {
	g    *Gateway
	id   string
	log  *slog.Logger
	peer *peer.Peer
	ctx  context.Context // done when the session is over
	end  context.CancelFunc
	work sync.WaitGroup // what waits on behalf of requests

	mu     sync.Mutex
	state  state
	caller Caller
	held   []*peer.Request   // waiting for initialized
	timer  *time.Timer       // gives up on it
	shown  *catalog.Snapshot // the list that the client has seen last
	told   *catalog.Snapshot // the change that it was last told of
}

func newSession(g *Gateway, conn transport.Conn) *Session {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	s := &Session{g: g, id: hex.EncodeToString(id)}
	s.log = g.Log.With("session", s.id)
	s.ctx, s.end = context.WithCancel(context.Background())
	s.peer = peer.New(conn, s, peer.Options{
		Log:      s.log,
		InFlight: g.InFlight,
		Batches:  s.batches,
		Refused:  s.refused,
	})
	return s
}

// hurried is the grace for calls in flight when the gateway itself is told to
// end, by a signal.
const hurried = 500 * time.Millisecond

func (s *Session) run(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.finish(hurried)
	})
	err := s.peer.Run(s.ctx)
	s.finish(s.g.Grace)
	if !stop() {
		<-stopped
		err = nil
	}
	s.work.Wait()
	return err
}

// finish ends the session: nothing new, a grace for what is in flight, the end.
// Of two calls the one whose grace is over first ends it.
func (s *Session) finish(grace time.Duration) {
	s.mu.Lock()
	s.state = closing
	s.mu.Unlock()
	s.release()
	ctx, cancel := context.WithTimeout(s.ctx, grace)
	defer cancel()
	s.peer.Drain(ctx)
	s.peer.Close()
	s.end()
}

// Asked implements peer.Handler.
func (s *Session) Asked(r *peer.Request) {
	method := r.Method()
	s.mu.Lock()
	verdict := admit(s.state, method)
	if verdict == hold {
		s.holdLocked(r)
	}
	s.mu.Unlock()
	switch verdict {
	case serve:
		s.serve(r, method)
	case refuse:
		s.fail(r, notInitialized)
	case again:
		s.fail(r, wire.Errorf(wire.CodeInvalidRequest, "Invalid request: the session is initialized already"))
	case unknown:
		s.fail(r, methodNotFound(method))
	case goodbye:
		s.fail(r, wire.Errorf(wire.CodeInternalError, "The gateway is ending"))
	}
}

// serve is the table of contents of what the gateway offers.
func (s *Session) serve(r *peer.Request, method string) {
	if params := r.Part(wire.PartParams); !wire.IsNull(params) && !wire.IsObject(params) {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: they must be an object"))
		return
	}
	switch mcp.MCPMethod(method) {
	case mcp.MethodInitialize:
		s.initialize(r)
	case mcp.MethodToolsList:
		s.listTools(r)
	case mcp.MethodToolsCall:
		s.callTool(r)
	default:
		s.fail(r, methodNotFound(method))
	}
}

// Told implements peer.Handler. Notifications that mean nothing here are
// dropped: they are never answered, not with an error either.
func (s *Session) Told(m wire.Message, _ *peer.Pending) {
	if m.Method() == string(mcp.MethodNotificationInitialized) {
		s.mu.Lock()
		if s.state == greeted {
			s.state = ready
		}
		s.mu.Unlock()
		s.release()
	}
}

// patience is how long a request may wait for initialized: over some transports
// the two can overtake each other.
const patience = 2 * time.Second

// holdLocked keeps a request until initialized has come. There are no more of
// them than requests may be in flight.
func (s *Session) holdLocked(r *peer.Request) {
	if len(s.held) == 0 {
		s.timer = time.AfterFunc(patience, s.release)
	}
	s.held = append(s.held, r)
}

// release lets go of the requests that were held: they are served, or refused
// if it is not the handshake's end that they are let go for.
func (s *Session) release() {
	s.mu.Lock()
	held := s.held
	s.held = nil
	if s.timer != nil {
		s.timer.Stop()
	}
	refused := s.state == greeted
	s.mu.Unlock()
	for _, r := range held {
		if refused {
			s.fail(r, notInitialized)
		} else {
			s.Asked(r)
		}
	}
}

// fail answers a request with an error of ours, and notes a call that was
// refused, or that was cancelled before it could be.
func (s *Session) fail(r *peer.Request, err *wire.Error) {
	if r.Fail(err) {
		s.refused(r.Message, err)
	} else {
		s.note(r.Message, Outcome{Kind: Cancelled})
	}
}

// refused notes a call that came to nothing before it began.
func (s *Session) refused(m wire.Message, err *wire.Error) {
	s.note(m, Outcome{Kind: Rejected, Code: err.Code})
}

func (s *Session) note(m wire.Message, o Outcome) {
	if m.Method() == string(mcp.MethodToolsCall) {
		c := s.newCall(m)
		s.g.begin(c)
		s.g.finish(c, o)
	}
}

func (s *Session) batches() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller.Revision.Batches
}
