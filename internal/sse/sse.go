package sse

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
	"unicode"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A Reader reads server-sent events as defined in the WHATWG's HTML standard (§9.2.6). It keeps the
// data that is needed to resume a stream. It deviates from the standard in three points:
//   - If a stream ends in an orderly way before the blank line that ends an event, the event is
//     still delivered if its data is a complete JSON object or array. Otherwise LastEventID stays
//     the id of the event before, so that the event can be requested again.
//   - An event with empty data is not delivered.
//   - An id with control characters counts as no id, because it cannot be sent in a header.
//
// The Reader never modifies a slice that it has returned. Data of one line is a part of the read
// buffer, without a copy, unless the buffer is much larger; data of several lines is copied.
type Reader struct {
	LastEventID string        // id of the last complete event; "" = none
	Retry       time.Duration // reconnection time that the server has set; negative = not set

	limit     int // bytes of one event's data
	r         io.Reader
	buf       []byte // bytes that were read but not consumed
	bufSize   int    // bytes of the array that contains buf
	err       error  // error that ended the stream, returned after the content of buf
	lease     transport.ReceiveLease
	dataBytes int  // bytes of data of the incomplete event
	pastBOM   bool // the first line of the stream was read
	afterCR   bool // the last line ended with CR; a following LF is part of its line end
}

// NewReader returns a Reader of events whose data has at most limit bytes. quota bounds the
// buffered bytes; nil = no bound.
func NewReader(limit int, quota *transport.ReceiveQuota) *Reader {
	return &Reader{limit: limit, Retry: -1, lease: quota.Lease()}
}

// Open starts to read a stream, or the continuation of the previous one.
func (r *Reader) Open(body io.Reader) {
	r.r, r.buf, r.err, r.pastBOM, r.afterCR = body, nil, nil, false, false
}

// Close discards the rest of the stream and releases its part of the quota.
func (r *Reader) Close() {
	r.buf, r.dataBytes = nil, 0
	r.lease.Release()
}

// finishEvent stops counting the data of the event that Next returns. If the event has made the
// buffer large and the rest of the buffer is small, finishEvent copies the rest and releases the
// lease.
func (r *Reader) finishEvent() {
	if r.dataBytes = 0; r.lease.Bytes() > 0 && !transport.IsCounted(len(r.buf)) {
		r.buf, r.bufSize = bytes.Clone(r.buf), len(r.buf)
		r.lease.Release()
	}
}

// An Event is one server-sent event that has data.
type Event struct {
	Type string // "" = "message"
	Data []byte
}

// IsMessage reports whether the event has the default type.
func (e Event) IsMessage() bool { return e.Type == "" || e.Type == "message" }

// A pendingEvent is an event whose final blank line has not been read.
type pendingEvent struct {
	Event
	id        string
	lines     int                       // number of data lines
	oversized *transport.OversizedError // data that was too large and is discarded; nil = none
}

// Next returns the next event that has data. A *transport.OversizedError reports an event that was
// too large; reading may continue. Any other error ends the stream: io.EOF if it ended in an
// orderly way.
func (r *Reader) Next() (Event, error) {
	d := pendingEvent{id: r.LastEventID}
	defer r.finishEvent()
	for {
		line, err := r.readLine()
		large, isLarge := errors.AsType[*transport.OversizedError](err)
		switch {
		case isLarge:
			d.dataTooLarge(large)
			continue
		case err == io.EOF && d.oversized != nil:
			return Event{}, d.oversized
		case err == io.EOF && isComplete(d.Data):
		case err != nil:
			return Event{}, err
		case len(line) > 0:
			r.parseField(&d, line)
			continue
		}
		r.LastEventID = d.id
		switch {
		case d.oversized != nil:
			return Event{}, d.oversized
		case len(d.Data) > 0:
			return d.Event, nil
		}
		d = pendingEvent{id: r.LastEventID}
	}
}

// isComplete reports whether data is a JSON object or array. Any other JSON value may be the
// beginning of a longer one.
func isComplete(data []byte) bool {
	data = wire.ReplaceInvalidUTF8(data)
	return wire.Members(data, func(string, []byte, int) {}) ||
		wire.EachElement(data, func([]byte) bool { return true })
}

// Each reads to the end of the stream and calls handle with each event, or with the error of an
// event that was too large. It returns whether a complete event that was not too large, or an event
// id, has arrived, and the error that ended the stream.
func (r *Reader) Each(
	handle func(Event, *transport.OversizedError),
) (received bool, err error) {
	before := r.LastEventID
	for {
		e, err := r.Next()
		large, isLarge := errors.AsType[*transport.OversizedError](err)
		switch {
		case isLarge:
			handle(Event{}, large)
		case err != nil:
			return received || r.LastEventID != before, err
		default:
			handle(e, nil)
			received = true
		}
	}
}

var colon, space, dataField = []byte(":"), []byte(" "), []byte("data")

// parseField processes one line of an event. A line that begins with a colon is a comment: its
// field name is empty, so it is ignored like every unknown field.
func (r *Reader) parseField(d *pendingEvent, line []byte) {
	name, value, _ := bytes.Cut(line, colon)
	value = bytes.TrimPrefix(value, space)
	switch string(name) {
	case "data":
		if d.lines == 0 && transport.IsCounted(r.bufSize) && len(value) < r.bufSize/4 {
			value = bytes.Clone(value) // the event may be stored longer than the others
		}
		d.addData(value, r.limit)
		r.dataBytes = cap(d.Data)
		if err := r.lease.Resize(cap(r.buf) + r.dataBytes); err != nil && d.oversized == nil {
			d.oversized, d.Data, r.dataBytes = transport.NewOversizedError(d.Data, r.limit), nil, 0
			d.oversized.Reason = err
		}
	case "event":
		d.Type = string(value)
	case "id":
		switch {
		case bytes.IndexByte(value, 0) >= 0:
		case bytes.ContainsFunc(value, unicode.IsControl):
			d.id = "" // the id cannot be sent in the header Last-Event-ID
		default:
			d.id = string(value)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			r.Retry = time.Duration(ms) * time.Millisecond
		}
	}
}

// addData adds one line of data; lines are joined by LF. The slice of the first line has no spare
// capacity, so append copies it.
func (d *pendingEvent) addData(value []byte, limit int) {
	if d.oversized != nil {
		return
	}
	if d.lines++; d.lines == 1 {
		d.Data = value
	} else {
		d.Data = append(append(d.Data, '\n'), value...)
	}
	if len(d.Data) > limit {
		d.oversized, d.Data = transport.NewOversizedError(d.Data, limit), nil
	}
}

// dataTooLarge discards the event if the line that was too long is a data line.
func (d *pendingEvent) dataTooLarge(line *transport.OversizedError) {
	name, value, _ := bytes.Cut(line.Head, colon)
	if d.oversized == nil && bytes.Equal(name, dataField) {
		line.Head = bytes.TrimPrefix(value, space)
		d.oversized, d.Data = line, nil
	}
}

// fieldOverhead is an upper bound for the bytes of a data line besides its data.
const fieldOverhead = 16

// readLine returns the next line without its line end (CR LF, LF or CR). After a CR it does not
// wait for an LF. A line that is too long, or that exceeds the quota, is skipped and reported as a
// *transport.OversizedError.
func (r *Reader) readLine() ([]byte, error) {
	scanned := 0
	for {
		if r.afterCR && len(r.buf) > 0 {
			r.buf, r.afterCR = bytes.TrimPrefix(r.buf, []byte("\n")), false
		}
		if n := lineEnd(r.buf[scanned:]); n >= 0 {
			line := r.buf[: scanned+n : scanned+n]
			r.consume(scanned + n)
			return r.withoutBOM(line), nil
		}
		if scanned = len(r.buf); scanned > r.limit+fieldOverhead {
			return nil, r.skipLine()
		}
		switch {
		case r.err == io.EOF && scanned > 0:
			line := r.buf[:scanned:scanned]
			r.buf = nil
			return r.withoutBOM(line), nil
		case r.err != nil:
			return nil, r.err
		}
		if err := r.fill(); err != nil {
			large := r.skipLine()
			large.Reason = err
			return nil, large
		}
	}
}

// consume removes a line of n bytes and its line end from buf. An LF after a CR stays in buf.
func (r *Reader) consume(n int) {
	r.afterCR = r.buf[n] == '\r'
	r.buf = r.buf[n+1:]
}

// lineEnd returns the index of the end of the first line in b; -1 = none. It searches for CR and LF
// window by window: if b contains only one of them, no search for the other extends over all of b.
func lineEnd(b []byte) int {
	const window = 1 << 10
	for lo := 0; lo < len(b); lo += window {
		part := b[lo:min(lo+window, len(b))]
		lf := bytes.IndexByte(part, '\n')
		if lf >= 0 {
			part = part[:lf]
		}
		if cr := bytes.IndexByte(part, '\r'); cr >= 0 {
			return lo + cr
		}
		if lf >= 0 {
			return lo + lf
		}
	}
	return -1
}

// withoutBOM removes the byte order mark from the first line of a stream.
func (r *Reader) withoutBOM(line []byte) []byte {
	if r.pastBOM {
		return line
	}
	r.pastBOM = true
	return transport.TrimBOM(line)
}

// skipLine reads to the end of the line. It returns an error with the beginning of the line and the
// id of the message in the line.
func (r *Reader) skipLine() *transport.OversizedError {
	head := r.withoutBOM(r.buf)
	head = transport.CopyHead(head, len(head))
	var skim wire.Skimmer
	for {
		if n := lineEnd(r.buf); n >= 0 {
			skim.Write(r.buf[:n])
			r.consume(n)
			return &transport.OversizedError{Head: head, ID: skim.ID()}
		}
		skim.Write(r.buf)
		r.buf = nil
		_ = r.lease.Resize(r.dataBytes)
		if r.err != nil {
			return &transport.OversizedError{Head: head, ID: skim.ID()}
		}
		_ = r.fill() // the quota does not count a buffer of minRead bytes
	}
}

// minRead is the minimum size of a buffer in bytes. It is small, because most responses are short,
// and each response has a stream of its own.
const minRead = 4 << 10

// fill reads once and stores an error of the read in err. If the buffer is nearly full, fill first
// copies it to a larger one. Returned slices stay unchanged. It fails, and reads nothing, if the
// quota does not allow the larger buffer.
func (r *Reader) fill() error {
	if cap(r.buf)-len(r.buf) < minRead/8 {
		size := max(minRead, min(2*len(r.buf), r.limit+fieldOverhead+minRead))
		if err := r.lease.Resize(size + r.dataBytes); err != nil {
			return err
		}
		r.buf, r.bufSize = append(make([]byte, 0, size), r.buf...), size
	}
	n, err := r.r.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf, r.err = r.buf[:len(r.buf)+n], err
	return nil
}
