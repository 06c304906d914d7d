package httpserver

import (
	"errors"
	"io"
	"sync"

	"mcpgateway/internal/wire"
)

// bodies counts what has been posted and is still held: from its first byte until what it
// asks is answered, or has no answer. Who holds as much as is free may post no more until
// something of it is answered; so one client takes half of the room at most, two take a third
// each, and there is always some for one that comes. What is small is counted, but never
// refused: it may be what takes a call back, and there are bounds enough on how many.
type bodies struct {
	most int64

	mu    sync.Mutex
	total int64
	of    map[holder]int64
}

const smallBody = 4 << 10

// A holder is who has posted: one of several principals, or else a session, or else
// whoever comes without.
type holder struct {
	who     principal
	session string
}

func (d *Server) holderOf(who principal, s *session) holder {
	if s != nil && !d.rules.Load().tellApart() {
		return holder{session: s.key}
	}
	return holder{who: who}
}

// A body is one that has been posted. Whoever has to do with it holds it; the first is who
// reads it.
type body struct {
	in     *bodies
	holder holder

	// Guarded by bodies.mu.
	size  int64
	holds int
}

func (in *bodies) begin(h holder) *body { return &body{in: in, holder: h, holds: 1} }

var errCrowded = errors.New("too much is arriving")

// grow notes that n bytes of a body have come. If they are too many it fails.
func (b *body) grow(n int) error {
	in := b.in
	in.mu.Lock()
	defer in.mu.Unlock()
	b.size += int64(n)
	in.total += int64(n)
	in.of[b.holder] += int64(n)
	if b.size > smallBody && in.of[b.holder] > in.most-in.total {
		return errCrowded
	}
	return nil
}

// hold is one more who holds a body.
func (b *body) hold() {
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	b.holds++
}

// release takes back one hold, of whoever had it. After the last the body does not count.
func (b *body) release() {
	in := b.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if b.holds--; b.holds == 0 {
		in.dropLocked(b)
	}
}

// forget has a body that is refused count no more, before anybody is told that it is.
func (b *body) forget() {
	in := b.in
	in.mu.Lock()
	defer in.mu.Unlock()
	in.dropLocked(b)
}

func (in *bodies) dropLocked(b *body) {
	in.total -= b.size
	if in.of[b.holder] -= b.size; in.of[b.holder] == 0 {
		delete(in.of, b.holder)
	}
	b.size = 0
}

// An arriving body counts while it is read.
type arriving struct {
	*body
	from io.Reader
}

func (a arriving) Read(b []byte) (int, error) {
	n, err := a.from.Read(b)
	if full := a.grow(n); full != nil {
		return n, full
	}
	return n, err
}

// letGo is for when a stream owes nothing any more of what stands in its body.
func (st *stream) letGo() {
	if st.body != nil {
		st.body.release()
		st.body = nil
	}
}

// holdLocked has a body be held until a request that stands in it is answered.
func (s *session) holdLocked(id wire.ID, b *body) {
	if s.bodies == nil {
		s.bodies = make(map[wire.ID]*body)
	}
	if s.bodies[id] == nil { // or it is refused
		b.hold()
		s.bodies[id] = b
	}
}

// letGoLocked is the end of holdLocked.
func (s *session) letGoLocked(id wire.ID) {
	if b := s.bodies[id]; b != nil {
		delete(s.bodies, id)
		b.release()
	}
}
