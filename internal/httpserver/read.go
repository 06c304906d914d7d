package httpserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// posted is what a client has sent.
type posted struct {
	m       wire.Message
	ids     []wire.ID // of the requests in it
	cancels []wire.ID // of the requests that it takes back, except those that stand behind that in a batch
	hello   bool      // it is an initialize
	takes   takes     // the forms of an answer that the client accepts
	body    *body
}

// id returns the id to answer with if nothing comes of it.
func (p *posted) id() wire.ID {
	if len(p.ids) == 1 && p.m.Kind() == wire.Request {
		return p.ids[0]
	}
	return ""
}

// read reads the message that was posted, by whom it counts for. If it belongs to nothing
// it may be an initialize, and no longer than such a one is. What is returned has to be
// released when there is nothing more to be done with it.
func (d *Server) read(w http.ResponseWriter, r *http.Request, belongs bool, by holder) (p *posted, no *refusal) {
	limit := d.o.MessageLimit
	if !belongs {
		limit = min(limit, maxHello)
	}
	p = &posted{body: d.bodies.begin(by)}
	defer func() {
		if no != nil {
			p.body.forget()
		}
	}()
	text, no := readBody(w, arriving{p.body, r.Body}, r.ContentLength, limit)
	if no != nil {
		return p, no
	}
	m, err := wire.Parse(transport.TrimBOM(text))
	p.m = m
	if err != nil {
		reason, _ := errors.AsType[*wire.Error](err)
		return p, &refusal{status: http.StatusBadRequest, id: m.ID(), err: reason}
	}
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
	seen := make(map[wire.ID]int) // requests, and how many cancellations stand before each
	wire.EachElement(p.m.Raw(), func(text []byte) bool {
		m, err := wire.Parse(text)
		bad = bad || err != nil || m.Kind() == wire.Batch
		if err == nil {
			p.note(m)
			if m.Kind() == wire.Request {
				seen[m.ID()] = len(p.cancels)
			}
		}
		return true
	})
	kept := p.cancels[:0]
	for i, id := range p.cancels {
		if before, ok := seen[id]; !ok || i >= before {
			kept = append(kept, id)
		}
	}
	p.cancels = kept
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

// readBody reads a body of at most limit bytes, whose length is announced, or -1.
func readBody(w http.ResponseWriter, from io.Reader, announced int64, limit int) ([]byte, *refusal) {
	size := announced
	if size > int64(limit) {
		return nil, tooLong(limit)
	}
	if size < 0 {
		size = int64(limit)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(timeFor(size)))
	text, err := transport.ReadText(from, announced, smallBody, limit, nil)
	switch {
	case errors.Is(err, errCrowded):
		return nil, refuse(http.StatusServiceUnavailable, "Too much has been sent that is not answered yet").retry(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(http.StatusRequestTimeout, "The request takes too long to arrive")
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "The request does not arrive as a whole")
	case len(text) > limit:
		no := tooLong(limit)
		var skim wire.Skimmer
		skim.Write(text)
		no.id = skim.ID()
		return nil, no
	}
	_ = control.SetReadDeadline(time.Time{}) // or what comes next on the connection would be too late
	return text, nil
}

func tooLong(limit int) *refusal {
	return refuse(http.StatusRequestEntityTooLarge, "Invalid request: the message is longer than %d bytes", limit)
}
