package backends

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"mcpgateway/catalog"
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

// run keeps the shared line up until ctx is done.
func (l *line) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.starting()
		err := l.converse(ctx)
		switch {
		case ctx.Err() != nil:
		case l.b.set.Once:
			l.down(Stopped, err)
			<-ctx.Done()
			return
		default:
			l.ended(err)
			l.rest(ctx)
		}
	}
	l.down(Stopped, errStopped)
}

// runOwn keeps a session's own line up for as long as something is wanted of it:
// a call waits for it, or there are subscriptions.
func (l *line) runOwn(all context.Context) {
	ctx, cancel := context.WithCancel(all)
	defer cancel()
	l.mu.Lock()
	l.hangUp = cancel
	over := l.closed
	l.mu.Unlock()
	for !over && ctx.Err() == nil {
		l.starting()
		err := l.converse(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errHandedOver) {
			return
		}
		l.ended(err)
		if l.idle() {
			return
		}
		l.rest(ctx)
	}
	if all.Err() != nil {
		l.down(Stopped, errStopped)
	} else {
		l.down(Stopped, errSessionOver)
	}
}

// idle reports whether nothing is wanted of the line; its goroutine then ends, and
// the next call starts another.
func (l *line) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 || !l.subs.empty() {
		return false
	}
	l.runs, l.rested = false, time.Now()
	if l.err != nil {
		l.rested = l.rested.Add(l.pause)
		l.pause = min(2*l.pause, lastPause)
	}
	return true
}

// close ends a session's own line.
func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	hangUp := l.hangUp
	l.mu.Unlock()
	if hangUp != nil {
		hangUp()
	}
}

// ended notes that a conversation has ended, or could not be begun.
func (l *line) ended(err error) {
	l.mu.Lock()
	if l.ran && time.Since(l.upAt) > settledAfter {
		l.pause = firstPause
	}
	pause, ran := l.pause, l.ran
	again := !ran && l.said == err.Error()
	l.said = err.Error()
	l.mu.Unlock()
	l.down(Failed, err)
	switch {
	case ran:
		l.log.Warn("backend ended; it will be started again", "err", err, "dur", pause)
	case again:
		l.log.Debug("backend failed to start, as before", "err", err, "dur", pause)
	default:
		l.log.Warn("backend failed to start; it will be tried again", "err", err, "dur", pause)
	}
}

// rest waits before the next start.
func (l *line) rest(ctx context.Context) {
	l.mu.Lock()
	pause := l.pause
	l.pause = min(2*pause, lastPause)
	l.mu.Unlock()
	select {
	case <-time.After(pause + rand.N(pause/4)):
	case <-l.hurry:
	case <-ctx.Done():
	}
}

// pardon has what has failed so far count no more: calls wait for the next try.
func (l *line) pardon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.peer == nil && l.state == Failed {
		l.err, l.pause = nil, firstPause
	}
}

// anew is pardon, and has the next try be made at once.
func (l *line) anew() {
	l.pardon()
	if p, _ := l.talk(); p != nil {
		return
	}
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

// converse holds one conversation with the backend, from the dial to its end,
// and returns why it ended. Nothing of it is left then. If the way in which it failed
// tells of which era the backend is, there is another one at once.
func (l *line) converse(ctx context.Context) error {
	err := l.tryEra(ctx)
	if isA[otherEra](err) && ctx.Err() == nil {
		err = l.tryEra(ctx)
	}
	if !l.hasRun() {
		l.b.unsettle()
	}
	return err
}

// tryEra is converse as what is known of the backend's era asks for. A server behind a
// URL is first taken for one of the stateless era, unless it is known for another.
func (l *line) tryEra(ctx context.Context) error {
	if l.b.cfg.URL == "" {
		return l.talkOver(ctx, byPipe)
	}
	v, pinned := l.b.verdict()
	if v.era != ofSessions && !l.mirrors() {
		err := l.talkOver(ctx, byItself)
		if pinned || !isA[classic](err) || l.hasRun() {
			return err
		}
		l.log.Debug("backend is of the session era", "err", err)
		l.b.judge(verdict{era: ofSessions})
		then := l.tryHTTP(ctx)
		if other, ok := errors.AsType[otherEra](then); ok {
			return other.error // it was asked a moment ago
		}
		return then
	}
	return l.tryHTTP(ctx)
}

// tryHTTP is converse with a server of the session era behind a URL. One that has no
// streamable HTTP is tried over HTTP+SSE, and known for that until it fails so.
func (l *line) tryHTTP(ctx context.Context) error {
	by := byHTTP
	if l.b.speaksOlder() {
		by = bySSE
	}
	err := l.talkOver(ctx, by)
	if !l.b.fallsBack(err) {
		if by == bySSE && !l.hasRun() {
			l.b.speakOlder(false)
		}
		return err
	}
	l.log.Info("backend has no streamable HTTP; trying HTTP+SSE", "err", err)
	then := l.talkOver(ctx, bySSE)
	if l.hasRun() {
		return then
	}
	return fmt.Errorf("%w; nor does it speak HTTP+SSE: %w", err, then)
}

// hasNeverListed reports whether it is not known what the backend has though there was a
// conversation before.
func (l *line) hasNeverListed() bool {
	l.mu.Lock()
	before := !l.upAt.IsZero()
	l.mu.Unlock()
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return !l.own() && before && l.b.raw[catalog.Tools] == nil
}

func (l *line) hasRun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran
}

// goesOn reports whether another conversation follows at once on one that failed so.
func (l *line) goesOn(err error) bool {
	_, pinned := l.b.verdict()
	return l.b.fallsBack(err) || isA[otherEra](err) || !pinned && isA[classic](err) || errors.Is(err, errHandedOver)
}

// talkOver is converse over one connection.
func (l *line) talkOver(ctx context.Context, by way) error {
	conn, err := l.b.dial(by)
	if err != nil {
		return err
	}
	talk, hangUp := context.WithCancelCause(l.b.life) // which may be longer than ctx, for calls in flight
	defer hangUp(nil)
	work, stop := both(ctx, talk)
	defer stop()
	h := &handler{l: l, hangUp: hangUp}
	var p *peer.Peer
	p = peer.New(conn, h, peer.Options{
		Log: l.log, InFlight: maxQuestions, Noise: h.heard, Batches: always, Over: func() { l.lost(p) },
	})
	h.peer = p
	ended := make(chan error, 1)
	go func() { ended <- p.Run(talk) }()
	defer p.Close()

	err = l.begin(work, p, by, ended)
	if by == bySSE && l.hasRun() {
		l.b.speakOlder(true)
	}
	if err != nil && !errors.Is(err, errEnded) && ctx.Err() == nil && !l.goesOn(err) {
		l.down(Failed, h.blame(err)) // at once, for to end a child may take a while
	}
	if talk.Err() == nil && l.b.serving.Err() != nil {
		p.Finish(talk) // it was retired
	}
	hangUp(nil)
	if why := <-ended; err == nil || errors.Is(err, errEnded) {
		err = why
	}
	if err == nil {
		err = errors.New("it closed the connection")
	}
	return h.blame(err)
}

// both returns a context that is done when one of two is, for the reason of that one.
func both(a, b context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(a)
	stop := context.AfterFunc(b, func() { cancel(context.Cause(b)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// always: a backend of a revision that has batches may answer in one, and those of
// others do not.
func always() bool { return true }

// errEnded says that the conversation is over; why is what Run returned.
var errEnded = errors.New("ended")

// begin shakes hands and lets the calls through. The shared line then keeps the
// listing up to date until the conversation ends.
func (l *line) begin(ctx context.Context, p *peer.Peer, by way, ended chan error) error {
	start, cancel := l.b.within(ctx, fmt.Errorf("it was not ready within %v (start_timeout)", l.b.cfg.StartTimeout))
	defer cancel()
	server, err := l.greet(start, p, by)
	if err != nil {
		return because(start, err)
	}
	switch {
	case server.stateless && l.mirrors():
		return otherEra{errors.New("it speaks the era of the client, too")}
	case server.stateless && l.own():
		l.handOver()
		return errHandedOver
	}
	missed := l.restore(start, p, server)
	early := server.stateless && l.hasNeverListed()
	l.up(p)
	if early {
		l.b.list(start, p, server, all) // it may not outlive the listen, and is known then
	}
	listens := l.listening(ctx, p, server) // behind up, so that it has what waited
	defer listens.end()
	for _, uri := range missed {
		l.updated(updated(uri), peer.Stream{})
	}
	if l.own() {
		select {
		case err := <-ended:
			ended <- err // for converse
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	listens.await(start)
	l.b.list(start, p, server, all)
	return l.follow(ctx, p, server, ended)
}

// A backend that says its lists have changed whenever it is asked for them is soon
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

// follow reads the backend's lists anew when they have changed, or when that
// failed, until the conversation ends.
//
// It also settles doubts about a server of the stateless era (line.again): it is
// discovered anew, and what waits for that is sent once more.
func (l *line) follow(ctx context.Context, p *peer.Peer, s server, ended chan error) error {
	b := l.b
	retry, inARow, listed := firstPause, 0, time.Now()
	for {
		select {
		case err := <-ended:
			ended <- err // for converse
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gap(inARow)):
		}
		var again <-chan time.Time
		if b.Status().Err != nil {
			again = time.After(retry)
			retry = min(2*retry, lastPause)
		} else {
			retry = firstPause
		}
		which, tell := all, func() {}
		select {
		case err := <-ended:
			ended <- err // for converse
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-b.relist:
			if inARow++; time.Since(listed) > gap(inARow)+time.Second {
				inARow = 0
			}
			which, tell = b.takeStale()
		case <-again:
		case <-b.stales():
			b.expire()
			which, tell = b.takeStale()
		}
		ctx, cancel := b.within(ctx, peer.ErrTimeout)
		err := l.reassure(ctx, p, &s)
		if err == nil {
			b.list(ctx, p, s, which)
		}
		cancel()
		tell()
		if err != nil {
			return err
		}
		l.sendAgain(p)
		listed = time.Now()
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
