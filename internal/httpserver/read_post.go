package httpserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// postedMessage is what a client has sent.
type postedMessage struct {
	m            wire.Message
	requestIDs   []wire.ID // of the requests in it
	cancelledIDs []wire.ID // of the requests that it takes back, except those that stand behind that in a batch
	isInitialize bool      // it is an initialize
	accept       accept    // the forms of an answer that the client accepts
	lease        *bodyLease
}

// errorID returns the id to answer with if nothing comes of it.
func (p *postedMessage) errorID() wire.ID {
	if len(p.requestIDs) == 1 && p.m.Kind() == wire.Request {
		return p.requestIDs[0]
	}
	return ""
}

// readPost reads the message that was posted, by whom it counts for. If it belongs to nothing
// it may be an initialize, and no longer than such a one is. What is returned has to be
// released when there is nothing more to be done with it.
func (srv *Server) readPost(w http.ResponseWriter, r *http.Request, belongs bool, by quotaKey) (p *postedMessage, herr *httpError) {
	limit := srv.opts.MessageLimit
	if !belongs {
		limit = min(limit, maxInitialize)
	}
	p = &postedMessage{lease: srv.bodyQuota.newLease(by)}
	defer func() {
		if herr != nil {
			p.lease.discard()
		}
	}()
	text, herr := readBody(w, countingReader{p.lease, r.Body}, r.ContentLength, limit)
	if herr != nil {
		return p, herr
	}
	m, err := wire.Parse(transport.TrimBOM(text))
	p.m = m
	if err != nil {
		reason, _ := errors.AsType[*wire.Error](err)
		return p, &httpError{status: http.StatusBadRequest, id: m.ID(), err: reason}
	}
	if m.Kind() == wire.Batch {
		herr = p.classifyBatch()
	} else {
		p.classify(m)
		p.isInitialize = m.Method() == protocol.MethodInitialize && m.Kind() == wire.Request
	}
	return p, herr
}

const maxInitialize = 1 << 20

// classify notes what one message is.
func (p *postedMessage) classify(m wire.Message) {
	switch {
	case m.Kind() == wire.Request:
		p.requestIDs = append(p.requestIDs, m.ID())
	case m.Kind() == wire.Notification && m.Method() == protocol.NotificationCancelled:
		p.cancelledIDs = append(p.cancelledIDs, m.RequestID())
	}
}

// classifyBatch looks at the messages of a batch. What is no message has its error in
// the answer, provided that there is a request, and so an answer. So has a request of
// the stateless era, from whoever reads the batch.
func (p *postedMessage) classifyBatch() *httpError {
	bad := false
	seen := make(map[wire.ID]int) // requests, and how many cancellations stand before each
	wire.EachElement(p.m.Raw(), func(text []byte) bool {
		m, err := wire.Parse(text)
		bad = bad || err != nil || m.Kind() == wire.Batch
		if err == nil {
			p.classify(m)
			if m.Kind() == wire.Request {
				seen[m.ID()] = len(p.cancelledIDs)
			}
		}
		return true
	})
	kept := p.cancelledIDs[:0]
	for i, id := range p.cancelledIDs {
		if before, ok := seen[id]; !ok || i >= before {
			kept = append(kept, id)
		}
	}
	p.cancelledIDs = kept
	switch {
	case len(seen) < len(p.requestIDs):
		return newHTTPError(http.StatusBadRequest, "Invalid request: an id stands twice in the batch")
	case len(p.requestIDs) == 0 && bad:
		return newHTTPError(http.StatusBadRequest, "Invalid request: the batch has what is no message")
	case len(p.requestIDs) == 0 && len(p.m.Elements()) == 0:
		return newHTTPError(http.StatusBadRequest, "Invalid request: the batch is empty")
	}
	return nil
}

// A body has to come within bodyTimeout, and a second more for each minBodyRate bytes;
// likewise has an answer to be taken that is no stream.
const (
	bodyTimeout = 30 * time.Second
	minBodyRate = 256 << 10
)

func transferTimeout(size int64) time.Duration {
	return bodyTimeout + time.Duration(size/minBodyRate)*time.Second
}

// readBody reads a body of at most limit bytes, whose length is announced, or -1.
func readBody(w http.ResponseWriter, from io.Reader, announced int64, limit int) ([]byte, *httpError) {
	size := announced
	if size > int64(limit) {
		return nil, messageTooLong(limit)
	}
	if size < 0 {
		size = int64(limit)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(transferTimeout(size)))
	text, err := transport.ReadText(from, announced, smallBody, limit, nil)
	switch {
	case errors.Is(err, errBodyQuota):
		return nil, newHTTPError(http.StatusServiceUnavailable, "Too much has been sent that is not answered yet").retryAfter(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newHTTPError(http.StatusRequestTimeout, "The request takes too long to arrive")
	case err != nil:
		return nil, newHTTPError(http.StatusBadRequest, "The request does not arrive as a whole")
	case len(text) > limit:
		herr := messageTooLong(limit)
		var skim wire.Skimmer
		skim.Write(text)
		herr.id = skim.ID()
		return nil, herr
	}
	_ = control.SetReadDeadline(time.Time{}) // or what comes next on the connection would be too late
	return text, nil
}

func messageTooLong(limit int) *httpError {
	return newHTTPError(http.StatusRequestEntityTooLarge, "Invalid request: the message is longer than %d bytes", limit)
}
