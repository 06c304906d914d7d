package backends

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"mcpgateway/peer"
)

// The pause before a backend is started again doubles with each failure.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 30 * time.Second
	// settledAfter is how long a backend must have been ready for the pauses to
	// begin anew.
	settledAfter = 30 * time.Second
)

// run keeps the backend running until ctx is done.
func (b *Backend) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		b.starting()
		err := b.converse(ctx)
		switch {
		case ctx.Err() != nil:
		case b.set.Once:
			b.down(Stopped, err)
			<-ctx.Done()
			return
		default:
			if b.hasSettled() {
				pause = firstPause
			}
			b.down(Failed, err)
			b.log.Warn("backend ended; it will be started again", "err", err, "dur", pause)
			select {
			case <-time.After(pause + rand.N(pause/4)):
			case <-ctx.Done():
			}
			pause = min(2*pause, lastPause)
		}
	}
	b.down(Stopped, errStopped)
}

// hasSettled reports whether the backend was ready for long enough before it
// ended.
func (b *Backend) hasSettled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ran && time.Since(b.upAt) > settledAfter
}

// converse holds one conversation with the backend, from the dial to its end,
// and returns why it ended. Nothing of it is left then.
func (b *Backend) converse(ctx context.Context) error {
	conn, err := b.dial()
	if err != nil {
		return err
	}
	h := &handler{b: b}
	var p *peer.Peer
	p = peer.New(conn, h, peer.Options{
		Log: b.log, InFlight: maxQuestions, Noise: h.heard, Batches: always, Over: func() { b.lost(p) },
	})
	talk, hangUp := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(talk) }()
	defer p.Close()

	err = b.begin(talk, p, ended)
	if err != nil && !errors.Is(err, errEnded) && ctx.Err() == nil {
		b.down(Failed, err) // at once, for to end a child may take a while
	}
	hangUp()
	if why := <-ended; err == nil || errors.Is(err, errEnded) {
		err = why
	}
	if err == nil {
		err = errors.New("it closed the connection")
	}
	if h.noise != "" {
		err = fmt.Errorf("%w; it also wrote what is no MCP: %q", err, h.noise)
	}
	return err
}

// always: a backend of a revision that has batches may answer in one, and those of
// others do not.
func always() bool { return true }

// errEnded says that the conversation is over; why is what Run returned.
var errEnded = errors.New("ended")

// begin shakes hands, and then keeps the listing up to date until the
// conversation ends.
func (b *Backend) begin(ctx context.Context, p *peer.Peer, ended chan error) error {
	start, cancel := b.within(ctx, fmt.Errorf("it was not ready within %v (start_timeout)", b.cfg.StartTimeout))
	defer cancel()
	server, err := b.greet(start, p)
	if err != nil {
		return because(start, err)
	}
	b.up(p)
	b.list(start, p, server)
	return b.follow(ctx, p, server, ended)
}

// A backend that says its tools have changed whenever it is asked for them is soon
// asked only now and then: after some lists in a row there is a pause before each,
// and it doubles while that goes on.
const (
	freeLists = 5
	lastGap   = 10 * time.Second
)

func gap(inARow int) time.Duration {
	if inARow < freeLists {
		return 0
	}
	return min(100*time.Millisecond<<min(inARow-freeLists, 10), lastGap)
}

// follow lists the backend's tools anew when they have changed, or when that
// failed, until the conversation ends.
func (b *Backend) follow(ctx context.Context, p *peer.Peer, s server, ended chan error) error {
	retry, inARow, listed := firstPause, 0, time.Now()
	for {
		select {
		case err := <-ended:
			ended <- err // for converse
			return errEnded
		case <-time.After(gap(inARow)):
		}
		var again <-chan time.Time
		if b.Status().Err != nil {
			again = time.After(retry)
			retry = min(2*retry, lastPause)
		} else {
			retry = firstPause
		}
		select {
		case err := <-ended:
			ended <- err // for converse
			return errEnded
		case <-b.relist:
			if inARow++; time.Since(listed) > gap(inARow)+time.Second {
				inARow = 0
			}
		case <-again:
		}
		ctx, cancel := b.within(ctx, peer.ErrTimeout)
		b.list(ctx, p, s)
		listed = time.Now()
		cancel()
	}
}

// within bounds ctx by the time that a start may take, if there is such a bound.
func (b *Backend) within(ctx context.Context, why error) (context.Context, context.CancelFunc) {
	if b.cfg.StartTimeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, b.cfg.StartTimeout, why)
}

// because names the time limit, where it is what ended a call.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}
