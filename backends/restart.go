package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
)

// run keeps the shared line up until ctx is done; one that is stopped until it is needed
// comes up then.
func (l *line) run(ctx context.Context) {
	needed := !l.b.isKnown()
	if !needed {
		l.log.Info("backend is started by its first call (lazy)")
	}
	for needed || l.awaitNeed(ctx) {
		l.starting()
		err := l.converse(ctx)
		needed = ctx.Err() == nil && !errors.Is(err, errIdle)
		switch {
		case !needed:
		case l.b.set.NoRestart:
			l.down(err)
			<-ctx.Done()
			return
		default:
			l.ended(err)
			l.rest(ctx)
			needed = ctx.Err() == nil
		}
	}
	l.down(errStopped)
}

// isKnown reports whether the backend need not be started to be listed.
func (b *Backend) isKnown() bool {
	_, answered := b.offer()
	return b.cfg.Lazy && answered && !b.set.NoRestart && !b.set.IgnoreCache
}

// need has the shared line come up if it is stopped until something is wanted of it.
func (l *line) need() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked()
}

// wakeUnlisted has the shared line come up if it was not yet: somebody uses the backend, and
// what it lists may be another thing by now than what is known of it.
func (b *Backend) wakeUnlisted() {
	b.mu.Lock()
	listed := b.status.Settled
	b.mu.Unlock()
	if !listed {
		b.shared.need()
	}
}

// awaitNeed waits until something is wanted of the shared line; it reports false if ctx is
// done first.
func (l *line) awaitNeed(ctx context.Context) bool {
	select {
	case <-l.wake:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false
	}
	l.log.Info("backend is started, for it is needed")
	return true
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
	if !over && l.keepUp(ctx) {
		return
	}
	if all.Err() != nil {
		l.down(errStopped)
	} else {
		l.down(errSessionOver)
	}
}

// keepUp is runOwn for as long as the session and the gateway go on; it reports whether it
// came to its end before.
func (l *line) keepUp(ctx context.Context) bool {
	for {
		l.rest(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case !l.mayStart():
			if l.idle() {
				return true
			}
			continue
		}
		l.starting()
		err := l.converse(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errHandedOver):
			return true
		case !errors.Is(err, errIdle):
			l.ended(err)
		}
		if l.idle() {
			return true
		}
	}
}

// mayStart reports whether a session's own line may be started now, as far as the others
// of its backend are concerned; if not, what waits for it ends with the reason.
func (l *line) mayStart() bool {
	now := time.Now()
	l.b.mu.Lock()
	next, reason := l.b.crowd.claim(now, rand.Float64())
	l.b.mu.Unlock()
	if reason == nil {
		return true
	}
	l.mu.Lock()
	l.sup.bar(reason, next)
	why := l.sup.refusal(now)
	var dropped []waiting
	dropped, l.waiting = l.waiting, nil
	l.mu.Unlock()
	l.end(dropped, why)
	return false
}

// idle reports whether nothing is wanted of the line; its goroutine then ends, and
// the next call starts another.
func (l *line) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 || !l.subs.empty() {
		return false
	}
	l.runs = false
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

// ended notes that a conversation has ended, or could not be begun, and that nothing is left
// of it.
func (l *line) ended(err error) {
	l.failed(err)
	l.mu.Lock()
	ran, open, circuit := l.sup.ran, l.sup.open(), l.sup.breaker
	again := l.said == err.Error()
	l.said = err.Error()
	l.mu.Unlock()
	l.b.tell(l, ran, circuit)
	next := roundly(circuit.pause)
	switch first := circuit.failures == opensAt; {
	case open && first:
		l.log.Warn("backend fails again and again; until it is up its calls fail at once", "err", err, "next", next)
	case ran:
		l.log.Warn("backend ended; it will be started again", "err", err, "next", next)
	case again:
		l.log.Debug("backend failed to start, as before", "err", err, "next", next)
	default:
		l.log.Warn("backend failed to start; it will be tried again", "err", err, "next", next)
	}
}

// roundly rounds a pause for who reads it.
func roundly(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

// tell lets the own lines of a backend know what became of one of its lines.
func (b *Backend) tell(l *line, ran bool, circuit breaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !l.own() && circuit.open():
		b.crowd.shared = &circuit
	case !l.own():
		b.crowd.shared = nil // it was pardoned
	case !ran:
		b.crowd.failed(time.Now(), l.session, circuit.reason, rand.Float64())
	}
}

// tellUp is tell for a line that has come up.
func (b *Backend) tellUp(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.own() {
		b.crowd.up()
	} else {
		b.crowd.shared = nil
	}
}

// rest waits until the next try is due.
func (l *line) rest(ctx context.Context) {
	for ctx.Err() == nil {
		l.mu.Lock()
		pause := time.Until(l.sup.due())
		l.mu.Unlock()
		if pause <= 0 {
			return
		}
		select {
		case <-time.After(pause):
		case <-l.hurry:
		case <-ctx.Done():
		}
	}
}

// pardon has what has failed so far count no more: there is a next try soon, and calls wait for
// it.
func (l *line) pardon() { l.retry(firstPause) }

// anew is pardon, and has the next try be made at once.
func (l *line) anew() { l.retry(0) }

func (l *line) retry(pause time.Duration) {
	l.mu.Lock()
	l.sup.pardon(time.Now(), pause)
	l.mu.Unlock()
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
	l.hasty = nil
	if !l.hasRun() {
		l.b.unsettle()
	}
	return err
}

// hasNeverListed reports whether it is not known what the backend has though there was a
// conversation before.
func (l *line) hasNeverListed() bool {
	l.mu.Lock()
	before := !l.sup.upAt.IsZero()
	l.mu.Unlock()
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return !l.own() && before && l.b.raw[catalog.Tools] == nil
}

func (l *line) isSour() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sup.sour
}

func (l *line) hasRun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sup.ran
}

// goesOn reports whether another conversation follows at once on one that failed so.
func (l *line) goesOn(err error) bool {
	_, pinned := l.b.verdict()
	return l.b.fallsBack(err) || isA[otherEra](err) || !pinned && l.mayBeLegacy(err) || errors.Is(err, errHandedOver)
}

// talkOver is converse over one connection.
func (l *line) talkOver(ctx context.Context, by way) error {
	started, err := l.b.set.starts.take(ctx, l.b.cfg)
	if err != nil {
		return err
	}
	defer started()
	conn, err := l.b.dial(by)
	if err != nil {
		return err
	}
	talk, hangUp := context.WithCancelCause(l.b.life) // which may be longer than ctx, for calls in flight
	defer hangUp(nil)
	work, stop := both(talk, ctx) // in this order: what ends talk ends work at once
	defer stop()
	h := &handler{l: l, hangUp: hangUp}
	var p *peer.Peer
	p = peer.New(conn, h, peer.Options{
		Log: func() *slog.Logger { return l.says }, MaxInFlight: maxQuestions, OnMalformed: h.heard, AllowBatches: always, OnDisconnect: func(why error) { l.lost(p, why) },
	})
	h.peer = p
	ended := make(chan error, 1)
	go func() { ended <- p.Run(talk) }()
	defer p.Close()

	err = l.begin(work, h, by, ended, started)
	if by == bySSE && l.hasRun() {
		l.b.speakOlder(true)
	}
	if talk.Err() != nil && errors.Is(err, context.Canceled) {
		err = errEnded // there is a better reason
	}
	if err != nil && !errors.Is(err, errEnded) && ctx.Err() == nil && !l.goesOn(err) {
		l.failed(h.blame(err)) // at once, for to end a child may take a while
	}
	idle := context.Cause(talk) == errIdle
	if talk.Err() == nil && l.b.serving.Err() != nil {
		l.finish(talk, p)
	}
	hangUp(nil)
	if why := <-ended; err == nil || errors.Is(err, errEnded) {
		err = why
	}
	switch {
	case idle:
		return errIdle
	case err == nil:
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
func (l *line) begin(ctx context.Context, h *handler, by way, ended chan error, started func()) error {
	p := h.peer
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
	started()
	l.b.tellUp(l)
	listed := l.reads()
	defer listed()
	l.up(p)
	defer l.watch(ctx, h, server)()
	if early {
		l.b.list(start, p, server, all) // it may not outlive the listen, and is known then
	}
	listens := l.listening(ctx, p, server) // behind up, so that it has what waited
	defer listens.end()
	for _, uri := range missed {
		l.updated(updated(uri), peer.Origin{})
	}
	if l.own() {
		listed()
		l.b.wakeUnlisted()
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
	listed()
	return l.follow(ctx, p, server, ended)
}

// A backend that says its lists have changed whenever it is asked for them is soon
// asked only now and then: after some lists in a row there is a pause before each,
// and it doubles while that goes on.
const (
	freeLists = 5
	lastGap   = 10 * time.Second
	// lastRetry is the longest pause before lists that could not be read are asked for
	// again, or it is listened to again.
	lastRetry = 30 * time.Second
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
		if l.ails(illLists) || l.ails(illNowhere) {
			again = time.After(retry)
			retry = min(2*retry, lastRetry)
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
		if err := l.renew(ctx, p, &s, which); err != nil {
			tell()
			return err
		}
		tell()
		l.sendAgain(p)
		listed = time.Now()
	}
}

// reads notes that lists are being read, until done is called.
func (l *line) reads() (done func()) {
	l.reading.Add(1)
	return sync.OnceFunc(func() { l.reading.Add(-1) })
}

// renew settles doubts about the server, and reads lists anew: all of them if it could not
// be reached before, and none if it cannot be now.
func (l *line) renew(ctx context.Context, p *peer.Peer, s *server, which [catalog.NumKinds]bool) error {
	defer l.reads()()
	ctx, cancel := l.b.within(ctx, peer.ErrTimeout)
	defer cancel()
	away := l.ails(illNowhere)
	if err := l.reassure(ctx, p, s); err != nil {
		return err
	}
	switch {
	case l.ails(illNowhere):
		return nil
	case away:
		which = all
	}
	l.b.list(ctx, p, *s, which)
	return nil
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
