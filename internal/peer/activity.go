package peer

import (
	"sync/atomic"
	"time"
)

// Activity describes what has happened on a connection, for keep-alive and idle timeouts.
type Activity struct {
	Since        time.Time // when the Peer was created
	LastReceived time.Time // last message received
	// LastUsed is the time at which a call last ended, a request or notification was last received,
	// or a response or notification was last sent. Calls made with Call, RoundTrip or RoundTripAll,
	// or marked [Call.Internal], do not count, and neither do cancellations of calls. The initial
	// value is the time at which the Peer was created.
	LastUsed time.Time
	InFlight bool // whether a call is in flight
}

// Activity returns the current Activity. It may be called at any time.
func (p *Peer) Activity() Activity {
	return Activity{
		Since:        p.createdAt,
		LastReceived: p.createdAt.Add(time.Duration(p.lastReceived.Load())),
		LastUsed:     p.createdAt.Add(time.Duration(p.lastUsed.Load())),
		InFlight:     p.calls.byID.Len() > 0,
	}
}

// OpenRequests returns the number of requests of the remote side without a response.
func (p *Peer) OpenRequests() int {
	p.requests.mu.Lock()
	defer p.requests.mu.Unlock()
	return len(p.requests.open)
}

// touch sets a timestamp to now.
func (p *Peer) touch(timestamp *atomic.Int64) { timestamp.Store(int64(time.Since(p.createdAt))) }

// noteCallEnd updates lastUsed when a call ends without a valid response.
func (p *Peer) noteCallEnd(c *Call) {
	if !c.Internal {
		p.touch(&p.lastUsed)
	}
}

// CloseIfIdle stops sending calls and returns true if the connection is open and idle: no call is
// in flight other than the argument except (nil = no exception), no ProgressRelay is active, and
// each request of the remote side has its response. Otherwise, and if the connection is draining,
// it changes nothing and returns false. Once it has returned true, TrySend fails with an error that
// wraps reason and [transport.ErrClosed], so that a call sent at this moment is not lost. The
// caller must then close the connection.
func (p *Peer) CloseIfIdle(reason error, except *Call) bool {
	return p.calls.closeIfIdle(closedError{reason}, except,
		func() bool { return !p.requests.owesResponse() })
}
