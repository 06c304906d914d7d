package door

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"mcpgateway/wire"
)

// posted is what a client has sent.
type posted struct {
	m       wire.Message
	ids     []wire.ID // of the requests in it
	cancels []wire.ID // of the requests that it takes back
	hello   bool      // it is an initialize
	events  bool      // the answer is rather wanted as events
}

// id returns the id to answer with if nothing comes of it.
func (p *posted) id() wire.ID {
	if len(p.ids) == 1 && p.m.Kind() == wire.Request {
		return p.ids[0]
	}
	return ""
}

// read reads the message that was posted. If it belongs to nothing it may be an
// initialize, and no longer than such a one is.
func (d *Door) read(w http.ResponseWriter, r *http.Request, belongs bool) (*posted, *refusal) {
	limit := d.o.Limit
	if !belongs {
		limit = min(limit, maxHello)
	}
	text, no := d.readBody(w, r, limit)
	if no != nil {
		return nil, no
	}
	m, err := wire.Parse(text)
	if err != nil {
		reason, _ := errors.AsType[*wire.Error](err)
		return nil, &refusal{status: http.StatusBadRequest, id: m.ID(), err: reason}
	}
	p := &posted{m: m}
	if m.Kind() == wire.Batch {
		no = p.unpack()
	} else {
		p.note(m)
		p.hello = m.Method() == "initialize" && m.Kind() == wire.Request
	}
	return p, no
}

const maxHello = 1 << 20

// note notes what one message is.
func (p *posted) note(m wire.Message) {
	switch {
	case m.Kind() == wire.Request:
		p.ids = append(p.ids, m.ID())
	case m.Kind() == wire.Notification && m.Method() == "notifications/cancelled":
		p.cancels = append(p.cancels, m.RequestID())
	}
}

// unpack looks at the messages of a batch. What is no message has its error in
// the answer, provided that there is a request, and so an answer. So has a request of
// the stateless era, from whoever reads the batch.
func (p *posted) unpack() *refusal {
	bad := false
	seen := make(map[wire.ID]bool)
	wire.EachElement(p.m.Raw(), func(text []byte) bool {
		m, err := wire.Parse(text)
		bad = bad || err != nil || m.Kind() == wire.Batch
		if err == nil {
			p.note(m)
			if m.Kind() == wire.Request {
				seen[m.ID()] = true
			}
		}
		return true
	})
	switch {
	case len(seen) < len(p.ids):
		return refuse(http.StatusBadRequest, "Invalid request: an id stands twice in the batch")
	case len(p.ids) == 0 && bad:
		return refuse(http.StatusBadRequest, "Invalid request: the batch has what is no message")
	case len(p.ids) == 0 && len(p.m.Elements()) == 0:
		return refuse(http.StatusBadRequest, "Invalid request: the batch is empty")
	}
	return nil
}

// A body has to come within bodyTime, and a second more for each bodyRate bytes;
// likewise has an answer to be taken that is no stream.
const (
	bodyTime = 30 * time.Second
	bodyRate = 256 << 10
)

func timeFor(size int64) time.Duration {
	return bodyTime + time.Duration(size/bodyRate)*time.Second
}

// maxArriving bounds what bodies hold together while they arrive. More than that is
// refused with 503, whosesoever it is.
func (d *Door) maxArriving() int64 { return 4 * int64(d.o.Limit) }

// An arriving body counts for the bound.
type arriving struct {
	d    *Door
	body io.Reader
	size int64
}

var errCrowded = errors.New("too much is arriving")

func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.body.Read(b)
	a.size += int64(n)
	if a.d.arriving.Add(int64(n)) > a.d.maxArriving() {
		return n, errCrowded
	}
	return n, err
}

// readBody reads a body of at most limit bytes.
func (d *Door) readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, *refusal) {
	size := r.ContentLength
	if size > int64(limit) {
		return nil, tooLong(limit)
	}
	if size < 0 {
		size = int64(limit)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(timeFor(size)))
	var body bytes.Buffer
	if r.ContentLength > 0 {
		body.Grow(int(min(r.ContentLength, maxHello)) + bytes.MinRead)
	}
	text := &arriving{d: d, body: r.Body}
	_, err := body.ReadFrom(io.LimitReader(text, int64(limit)+1))
	d.arriving.Add(-text.size)
	switch {
	case errors.Is(err, errCrowded):
		return nil, refuse(http.StatusServiceUnavailable, "Too much is arriving at this moment").retry(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(http.StatusRequestTimeout, "The request takes too long to arrive")
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "The request does not arrive as a whole")
	case body.Len() > limit:
		no := tooLong(limit)
		var skim wire.Skimmer
		skim.Write(body.Bytes())
		no.id = skim.ID()
		return nil, no
	}
	_ = control.SetReadDeadline(time.Time{}) // or what comes next on the connection would be too late
	return body.Bytes(), nil
}

func tooLong(limit int) *refusal {
	return refuse(http.StatusRequestEntityTooLarge, "Invalid request: the message is longer than %d bytes", limit)
}
