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

// A postedMessage is the body of a POST.
type postedMessage struct {
	m          wire.Message
	requestIDs []wire.ID // ids of the requests
	// Ids of the cancelled requests, except requests that follow their cancellation in the batch.
	cancelledIDs []wire.ID
	isInitialize bool           // m is an initialize request
	accept       acceptedFormat // accepted formats of the response
	lease        *bodyLease
}

// errorID returns the request id for an error response; "" = no request, or a batch.
func (p *postedMessage) errorID() wire.ID {
	if len(p.requestIDs) == 1 && p.m.Kind() == wire.Request {
		return p.requestIDs[0]
	}
	return ""
}

// A postReader reads posted messages and limits their bytes.
type postReader struct {
	limit        int  // Options.MessageLimit
	traceContext bool // Options.TraceContext
	quota        bodyQuota
}

// read reads a posted message and counts its bytes for key. If anyMessage is false, because the
// request has neither a session nor a modern header, only an initialize request is expected, and
// the limit is maxInitialize. The caller must release the lease of the result, even after an error.
func (pr *postReader) read(
	w http.ResponseWriter, r *http.Request, anyMessage bool, key quotaKey,
) (p *postedMessage, herr *httpError) {
	limit := pr.limit
	if !anyMessage {
		limit = min(limit, maxInitialize)
	}
	p = &postedMessage{lease: pr.quota.newLease(key)}
	defer func() {
		if herr != nil {
			p.lease.discard()
		}
	}()
	text, herr := readBody(w, leaseReader{p.lease, r.Body}, r.ContentLength, limit)
	if herr != nil {
		return p, herr
	}
	m, err := wire.Parse(transport.TrimBOM(text))
	if pr.traceContext && err == nil {
		m = withTraceContext(m, r.Header)
	}
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

const maxInitialize = 1 << 20 // bytes of a body without a session

// classify records the request id, or the id of the cancelled request, in m.
func (p *postedMessage) classify(m wire.Message) {
	switch {
	case m.Kind() == wire.Request:
		p.requestIDs = append(p.requestIDs, m.ID())
	case m.Kind() == wire.Notification && m.Method() == protocol.NotificationCancelled:
		p.cancelledIDs = append(p.cancelledIDs, m.RequestID())
	}
}

// classifyBatch classifies the messages of a batch. It returns an error if the batch is empty, if
// two of its requests have the same id, or if it contains an invalid message and no request. A
// batch with a request gets a response, in which the SessionHandler reports invalid messages and
// modern requests.
func (p *postedMessage) classifyBatch() *httpError {
	invalid := false
	cancelsBefore := make(map[wire.ID]int) // request id → number of cancellations before it
	wire.EachElement(p.m.Raw(), func(text []byte) bool {
		m, err := wire.Parse(text)
		invalid = invalid || err != nil || m.Kind() == wire.Batch
		if err == nil {
			p.classify(m)
			if m.Kind() == wire.Request {
				cancelsBefore[m.ID()] = len(p.cancelledIDs)
			}
		}
		return true
	})
	remaining := p.cancelledIDs[:0]
	for i, id := range p.cancelledIDs {
		if n, ok := cancelsBefore[id]; !ok || i >= n {
			remaining = append(remaining, id)
		}
	}
	p.cancelledIDs = remaining
	switch {
	case len(cancelsBefore) < len(p.requestIDs):
		return newHTTPError(http.StatusBadRequest,
			"Invalid request: the batch contains an id twice")
	case len(p.requestIDs) == 0 && invalid:
		return newHTTPError(http.StatusBadRequest,
			"Invalid request: the batch contains an invalid message")
	case len(p.requestIDs) == 0 && len(p.m.Elements()) == 0:
		return newHTTPError(http.StatusBadRequest, "Invalid request: the batch is empty")
	}
	return nil
}

// A body must arrive within bodyTimeout plus one second for each minBodyRate bytes. The client must
// read written data within the same time.
const (
	bodyTimeout = 30 * time.Second
	minBodyRate = 256 << 10
)

func transferTimeout(size int64) time.Duration {
	return bodyTimeout + time.Duration(size/minBodyRate)*time.Second
}

// readBody reads a body of at most limit bytes. contentLength is -1 if the length is unknown.
func readBody(
	w http.ResponseWriter, from io.Reader, contentLength int64, limit int,
) ([]byte, *httpError) {
	size := contentLength
	if size > int64(limit) {
		return nil, messageTooLong(limit)
	}
	if size < 0 {
		size = int64(limit)
	}
	control := http.NewResponseController(w)
	if size >= minBodyRate { // otherwise the deadline that ServeHTTP has set is the same
		_ = control.SetReadDeadline(time.Now().Add(transferTimeout(size)))
	}
	text, err := transport.ReadText(from, contentLength, smallBody, limit, nil)
	switch {
	case errors.Is(err, errBodyQuota):
		return nil, newHTTPError(http.StatusServiceUnavailable,
			"Too many bytes are posted and not answered yet").retryAfter(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newHTTPError(http.StatusRequestTimeout,
			"The request body took too long to arrive")
	case err != nil:
		return nil, newHTTPError(http.StatusBadRequest, "The request body is incomplete")
	case len(text) > limit:
		herr := messageTooLong(limit)
		var skim wire.Skimmer
		skim.Write(text)
		herr.id = skim.ID()
		return nil, herr
	}
	// The deadline must not apply to the next request on the connection.
	_ = control.SetReadDeadline(time.Time{})
	return text, nil
}

func messageTooLong(limit int) *httpError {
	return newHTTPError(http.StatusRequestEntityTooLarge,
		"Invalid request: the message is longer than %d bytes", limit)
}
