package door

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpgateway/revision"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// isStateless reports whether what was posted is of the stateless era, well made or
// not: it says so itself, or the header does. A request of a session that is there, and
// names a revision that nobody knows, is the session's.
func isStateless(r *http.Request, p *posted, inSession bool) bool {
	if p.m.Kind() == wire.Request && revision.IsStateless(p.m) {
		return true
	}
	asked := r.Header.Get(versionHeader)
	_, known := revision.Find(asked)
	return revision.IsLater(asked) && (known || !inSession)
}

// checkStateless returns what is wrong with a request of the stateless era, in the order
// in which it has to be looked for: what its _meta lacks, what the headers say
// otherwise, a revision that is not spoken, and what Examine finds.
func (d *Door) checkStateless(r *http.Request, m wire.Message) *wire.Error {
	_, err := revision.ReadStamp(m)
	if !revision.IsStateless(m) && m.Method() == "initialize" {
		return wire.Errorf(revision.CodeHeaderMismatch, "Header mismatch: initialize is of the revisions before that which the header MCP-Protocol-Version names")
	}
	if err != nil && err.Code != revision.CodeUnsupportedVersion {
		return err
	}
	if named := r.Header[versionHeader]; len(named) != 1 || strings.Trim(named[0], " \t") != revision.Named(m) {
		return wire.Errorf(revision.CodeHeaderMismatch, "Header mismatch: the header MCP-Protocol-Version must say the same as _meta")
	}
	if err == nil && d.o.Examine != nil {
		err = d.o.Examine(m, r.Header.Values)
		if err != nil && err.Code == wire.CodeInvalidParams {
			return err
		}
	}
	return err
}

// statusOf is the status of an answer that is an error and nothing else.
func statusOf(code int) int {
	switch code {
	case revision.CodeHeaderMismatch, revision.CodeMissingCapability, revision.CodeUnsupportedVersion:
		return http.StatusBadRequest
	case wire.CodeMethodNotFound:
		return http.StatusNotFound // "… so that it can be told from a server that has no such URL by its body"
	}
	return http.StatusOK
}

// visit serves a request of the stateless era: to its answer, or until the client hangs
// up, which takes it back.
func (d *Door) visit(w http.ResponseWriter, r *http.Request, p *posted, who principal) {
	switch p.m.Kind() {
	case wire.Request:
	case wire.Notification:
		w.WriteHeader(http.StatusAccepted) // there is none that means anything here
		return
	default:
		refuse(http.StatusBadRequest, "Invalid request: one request, or one notification, is posted at a time").of(p).send(w)
		return
	}
	if err := d.checkStateless(r, p.m); err != nil {
		status := statusOf(err.Code)
		if err.Code == wire.CodeInvalidParams {
			status = http.StatusBadRequest
		}
		(&refusal{status: status, err: err}).of(p).send(w)
		return
	}
	v := &visit{door: d, m: p.m, wake: make(chan struct{}, 1), closed: make(chan struct{}), reader: newReader(w)}
	if no := d.admitVisit(v, who); no != nil {
		no.of(p).send(w)
		return
	}
	v.answer(r.Context(), w, p)
}

// admitVisit has a request served, if there is room for it.
func (d *Door) admitVisit(v *visit, who principal) *refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closing:
		return d.ending()
	case d.visits >= d.o.Sessions:
		return refuse(http.StatusServiceUnavailable, "Too many requests are being served").retry(1)
	}
	d.visits++
	_, name := newKey()
	d.serving.Go(func() {
		d.o.Serve(d.ctx, Visit{Session: name, Principal: who.String(), Stateless: true}, v)
		v.end()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.visits--
	})
	return nil
}

// A visit is the Conn of one request of the stateless era: what belongs to it is all that
// there is. It is over when the answer is written, when the client hangs up, or when it
// is closed.
type visit struct {
	door   *Door
	m      wire.Message
	wake   chan struct{} // 1 slot: there is something to be sent, or it is over
	closed chan struct{}

	read bool // m was; the reading goroutine's own

	mu       sync.Mutex
	events   []wire.Message // that are to be sent
	size     int            // bytes of those
	answered bool           // the last of them is the answer
	over     bool
	reader   *reader // nil once the exchange has ended
}

// Read implements transport.Conn.
func (v *visit) Read() (wire.Message, wire.ID, error) {
	if !v.read {
		v.read = true
		return v.m, "", nil
	}
	<-v.closed
	return wire.Message{}, "", transport.ErrClosed
}

// Write implements transport.Conn. What comes after the answer is dropped, and so is a
// request: nothing is asked of a client in this era.
func (v *visit) Write(m wire.Message, _ wire.ID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.over:
		return transport.ErrClosed
	case v.answered || m.Kind() == wire.Request:
		return nil
	case v.size >= v.door.o.Limit:
		return transport.ErrFull
	}
	v.events = append(v.events, m)
	v.size += cost(m.Raw())
	v.answered = m.Kind() == wire.Response
	v.call()
	return nil
}

// Close implements transport.Conn: what was written still goes out, which Close does not
// wait for. A client that does not take it within lastWords is cut off.
func (v *visit) Close() error {
	v.end()
	return nil
}

func (v *visit) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over {
		return
	}
	v.over = true
	close(v.closed)
	if v.reader != nil {
		v.reader.hurry(lastWords)
	}
	v.call()
}

func (v *visit) call() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// take returns what is to be sent now; more says whether anything may follow.
func (v *visit) take() (events []wire.Message, more bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	events, v.events, v.size = v.events, nil, 0
	return events, !v.answered && !v.over
}

// answer sends the client what is written, until there is no more to come. The headers
// are held back until it is known what kind of answer it is: an error alone has a
// status of its own.
func (v *visit) answer(ctx context.Context, w http.ResponseWriter, p *posted) {
	defer func() {
		v.mu.Lock()
		if v.reader.hurried {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		}
		v.reader = nil
		v.mu.Unlock()
		v.end()
	}()
	timer := time.NewTimer(keepAlive)
	defer timer.Stop()
	events, more := []wire.Message(nil), true
	select {
	case <-v.wake:
		events, more = v.take()
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	if !more && len(events) == 0 {
		v.door.ending().of(p).send(w)
		return
	}
	if len(events) == 1 && !more {
		failure := events[0].Part(wire.PartError)
		status := http.StatusOK
		if failure != nil {
			status = statusOf(wire.ReadError(failure).Code)
		}
		if status != http.StatusOK || !p.events {
			sendJSON(w, status, events[0].Raw())
			return
		}
	}
	beginEvents(w)
	x := &reader{w: w}
	if x.send(nil) != nil {
		return
	}
	for {
		if len(events) > 0 {
			batch := make([][]byte, len(events))
			for i, m := range events {
				batch[i] = m.Raw()
			}
			if x.sendEvents(batch, "", 0) != nil {
				return
			}
		}
		if !more {
			return
		}
		timer.Reset(keepAlive)
		select {
		case <-v.wake:
			events, more = v.take()
		case <-timer.C:
			events = nil
			if x.send([]byte(": keep-alive\n\n")) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
