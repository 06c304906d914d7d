package backends

import (
	"context"
	"errors"
	"slices"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// A backend that is a member of its Set no more is retired. Its lines take nothing new:
// what comes to them, and what waits there, is passed on to the backend that has the name
// now. What was sent over them stays there until it has come to its end, and then they do.
//
//	Backend.retire ─ line.retire, each: what waits there, and the subscriptions, are taken out
//	  ├ serving is done: line.run and runOwn start nothing anew, line.begin returns,
//	  │   talkOver waits for the calls in flight (peer.Finish) and hangs up
//	  ├ Backend.adopt, passOn
//	  └ Set.forget, when nothing of it runs any more

// start has the backend run for as long as it serves and Set.Run runs.
func (b *Backend) start() {
	b.mu.Lock()
	ok := b.retired || b.spawn(b.shared.run)
	b.mu.Unlock()
	if !ok {
		b.shared.down(errStopped)
	}
}

// spawn is Set.spawn for what belongs to the backend; f is to end when it serves no more,
// or soon after.
func (b *Backend) spawn(f func(serving context.Context)) bool {
	b.running.Add(1)
	ok := b.set.spawn(func(context.Context) {
		defer b.running.Done()
		f(b.serving)
	})
	if !ok {
		b.running.Done()
	}
	return ok
}

// retire takes a backend out of service that is a member no more. It does not wait for the
// calls that are at it.
func (b *Backend) retire() {
	b.opening.Lock() // no line of its own is half open: the subscriptions are here or there
	b.mu.Lock()
	b.retired = true
	lines := []*line{b.shared}
	for _, l := range b.own {
		lines = append(lines, l)
	}
	b.mu.Unlock()
	b.opening.Unlock()
	var left []waiting
	for _, l := range lines {
		waiting, subscribed := l.retire()
		left = append(left, waiting...)
		for session, uris := range subscribed {
			b.passOnSubscriptions(session, uris)
		}
	}
	b.withdraw()
	left = append(left, b.places.close()...)
	for _, w := range left {
		b.passOn(w)
	}
	b.set.spawn(func(context.Context) {
		b.running.Wait()
		b.set.forget(b)
	})
}

// retire has nothing be sent over the line any more. It returns what waits in it, and what
// the sessions are subscribed to over it.
func (l *line) retire() ([]waiting, map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retired = true
	left := slices.Concat(l.again, l.arming, l.waiting)
	l.again, l.arming, l.waiting = nil, nil, nil
	subscribed := l.subs.bySession()
	l.subs, l.adopted = subscriptions{}, nil
	return left, subscribed
}

// finish waits for the calls that are at a server whose backend is retired, or for the end
// of the session whose own line it is.
func (l *line) finish(ctx context.Context, p *peer.Peer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	l.hangUp = cancel
	over := l.closed
	l.mu.Unlock()
	if !over {
		p.DrainCalls(ctx)
	}
}

// successor returns the member that has the name of a retired backend now, nil if there is none.
func (b *Backend) successor() *Backend {
	if next := b.set.now().byName[b.cfg.Name]; next != b {
		return next
	}
	return nil
}

// passOn sends what has come to a retired backend to the one that has its name now.
func (b *Backend) passOn(w waiting) {
	next := b.successor()
	switch {
	case next == nil:
		w.c.Handler.OnResponse(wire.Message{}, b.set.now().absent(b.cfg.Name))
	case w.m.Method() == "resources/unsubscribe":
		next.unsubscribe(subject(w.m), w.m, w.c)
	case w.sub != nil:
		next.line(w.c.SessionID, false).send(waiting{m: w.m, c: w.c, sub: w.sub})
	default:
		next.places.enter(waiting{m: w.m, c: w.c})
	}
}

// passOnSubscriptions is passOn for what a session is subscribed to.
func (b *Backend) passOnSubscriptions(session string, uris []string) {
	if next := b.successor(); next != nil && len(uris) > 0 {
		next.line(session, false).adopt(session, uris)
	}
}

// adopt takes over what a session was subscribed to at the backend that had the name before.
// The server is told of it, at once or when it is there, and the session then that there may
// be an update: one may have been missed.
func (l *line) adopt(session string, uris []string) {
	l.mu.Lock()
	switch {
	case l.retired:
		l.mu.Unlock()
		l.b.passOnSubscriptions(session, uris)
		return
	case l.handed:
		l.mu.Unlock()
		l.b.shared.adopt(session, uris)
		return
	}
	defer l.mu.Unlock()
	if !l.b.set.isOpen(session) {
		return // who closes it looks here afterwards
	}
	for _, uri := range uris {
		if l.subs.add(uri, session) {
			l.subs.agreed(uri, session)
			l.adopted = append(l.adopted, uri)
		}
	}
	l.wakeLocked()
	l.tellAdoptedLocked()
}

// tellAdoptedLocked tells the server of subscriptions that came from another backend, if
// there is one. One that is being greeted is told with those that there were before, or when
// it is ready.
func (l *line) tellAdoptedLocked() {
	uris := l.adopted
	if l.peer == nil || len(uris) == 0 {
		return
	}
	if l.server.stateless {
		l.pokeListening() // and takes them when it listens to them
		return
	}
	l.adopted = nil
	p, s := l.peer, l.server
	l.b.spawn(func(ctx context.Context) {
		if s.has("resources", "subscribe") {
			ctx, cancel := context.WithTimeout(ctx, restoring)
			defer cancel()
			l.repeat(ctx, p, subscribeAll(l.b.permitted(uris)))
		}
		for _, uri := range uris {
			l.updated(updated(uri), peer.Origin{})
		}
	})
}

// forget is called when nothing of a retired backend is left. What could not start beside it
// may now.
func (s *Set) forget(b *Backend) {
	b.kill(nil)
	s.mu.Lock()
	m := *s.now()
	m.retired = slices.DeleteFunc(slices.Clone(m.retired), func(one *Backend) bool { return one == b })
	s.members.Store(&m)
	s.mu.Unlock()
	if next := b.successor(); next != nil {
		next.shared.anew()
	}
}

// maxRetired bounds the retired backends of one name.
const maxRetired = 4

var errReloaded = errors.New("the configuration was changed too often while it was at the call")

// thinOut ends the oldest of the retired backends of a name of which there are too many.
func (s *Set) thinOut() {
	number := make(map[string]int)
	for _, b := range slices.Backward(s.now().retired) {
		if number[b.cfg.Name]++; number[b.cfg.Name] > maxRetired {
			b.kill(errReloaded)
		}
	}
}
