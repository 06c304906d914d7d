package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A clientConn is what requests need of the connection of their client: of a [Session], or of an
// [openRequest], which is a connection with a single request.
type clientConn struct {
	g          *Gateway
	id         string               // session id, for logs and audit records
	principal  *principal.Principal // nil if there is no authentication
	transport  ClientTransport
	work       *workGroup  // goroutines that serve requests
	stopped    atomic.Bool // the gateway is shutting down
	backlogged func() bool // reports whether much unsent data is queued for the client

	clients      retainedClients // used by the reading goroutine only
	servesModern atomic.Bool     // some request belongs to a statelessClient

	listens       openSet[*listenRequest]
	backlogLogged atomic.Pointer[time.Time] // last warning of isBacklogged; nil = none
}

// log returns the connection's logger. The logger is created on demand, because most connections
// log little.
func (cc *clientConn) log() *slog.Logger {
	return cc.g.Log.With("session", cc.id).With(cc.principal.LogAttrs()...)
}

// view returns the current view of what the client may use.
func (cc *clientConn) view() *catalog.View { return cc.g.Backends.ViewFor(cc.principal) }

// uses reports whether the client may use a backend, and get messages from it.
func (cc *clientConn) uses(backend string) bool {
	return cc.g.Backends.IsPermitted(cc.principal, backend)
}

// isBacklogged reports whether so much unsent data is queued for the client that notifications must
// be delayed or dropped. If every notification were queued, a backend that sends faster than the
// client reads would fill the queue. A full queue ends the connection and its calls at all
// backends. isBacklogged logs a warning at most once per backlogLogInterval.
func (cc *clientConn) isBacklogged(backend string) bool {
	if !cc.backlogged() {
		return false
	}
	last := cc.backlogLogged.Load()
	if (last == nil || time.Since(*last) >= backlogLogInterval) &&
		cc.backlogLogged.CompareAndSwap(last, new(time.Now())) {
		cc.log().Warn("notifications delayed or dropped for slow client", "backend", backend)
	}
	return true
}

// goFor starts a goroutine that serves a request. Its context is done when the request is cancelled
// or the connection has ended.
func (cc *clientConn) goFor(r *peer.Request, serve func(context.Context)) {
	ctx, cancel := context.WithCancel(cc.work.ctx)
	if !r.OnCancel(cancelFunc(cancel)) {
		cancel()
		return
	}
	cc.work.Go(func() {
		defer cancel()
		serve(ctx)
	})
}

// awaitSettled starts a goroutine that serves a request with the view when all backends have
// settled, unless the request has ended by then.
func (cc *clientConn) awaitSettled(r *peer.Request, serve func(*catalog.View)) {
	cc.goFor(r, func(ctx context.Context) {
		if v, ok := awaitCatalog(ctx, cc.view, isSettled); ok {
			serve(v)
		}
	})
}

// finishListens ends the subscriptions when the connection is closing.
func (cc *clientConn) finishListens() {
	for _, l := range cc.listens.close() {
		l.finish()
	}
}

// failModern responds to a modern request with an error and audits the call; see [Session.fail].
func (cc *clientConn) failModern(r *peer.Request, err *wire.Error) {
	from := TracedClient{HTTP: cc.transport != Stdio}
	cc.g.record(from, cc.id, clientName(r.Message), cc.principal, r.Message, rejection(r, err))
}

// retainedClients are the stateless clients that a connection retains, the latest last: the
// maxClientsPerConn clients that were used last, until the connection closes.
type retainedClients []*statelessClient

// acquire returns the stateless client to which a request on the connection belongs. If the table
// of clients is full, it releases some of the retained clients. It returns the error of
// statelessClients.acquire if no client can be evicted or the gateway is shutting down.
func (all *retainedClients) acquire(cc *clientConn,
	meta protocol.ClientMeta) (*statelessClient, error) {
	table := &cc.g.statelessClients
	client, err := table.acquire(cc, meta)
	for errors.Is(err, errTooManyClients) && len(*all) > 0 {
		all.release(0)
		client, err = table.acquire(cc, meta)
	}
	if err != nil {
		return nil, err
	}
	i := slices.Index(*all, client)
	*all = append(*all, client)
	switch {
	case i >= 0:
		all.release(i) // retained already
	case len(*all) > maxClientsPerConn:
		all.release(0) // the least recently used
	}
	return client, nil
}

func (all *retainedClients) release(i int) {
	(*all)[i].release()
	*all = slices.Delete(*all, i, i+1)
}

func (all *retainedClients) releaseAll() {
	for len(*all) > 0 {
		all.release(0)
	}
}
