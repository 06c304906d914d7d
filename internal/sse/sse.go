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

// An Reader reads server-sent events as the WHATWG's HTML standard has
// them (§9.2.6), and keeps from one stream to its continuation what resuming
// needs. It departs from the standard in one thing: an event that the stream's
// orderly end cuts off before its blank line is still delivered, for JSON tells
// by itself whether it is whole.
//
// What it hands out are slices that it never touches again; only data of
// several lines is copied.
type Reader struct {
	limit       int           // bytes of one event's data
	LastEventID string        // the id of the last complete event
	Retry       time.Duration // how long the server asked to wait before resuming; below 0 if it did not

	r         io.Reader
	buf       []byte // read and not yet consumed
	err       error  // what ended the stream, once buf is used up
	lease     transport.ReceiveLease
	dataBytes int  // bytes of the data of the event that is not complete
	pastBOM   bool // the place where a byte order mark may stand is passed
	afterCR   bool // the last line ended with CR: an LF that follows belongs to it
}

func NewReader(limit int, quota *transport.ReceiveQuota) *Reader {
	return &Reader{limit: limit, Retry: -1, lease: quota.Lease()}
}

// Open begins a stream, or the continuation of one.
func (r *Reader) Open(body io.Reader) {
	r.r, r.buf, r.err, r.pastBOM, r.afterCR = body, nil, nil, false, false
}

// Close forgets what is left of a stream that is not read any more.
func (r *Reader) Close() {
	r.buf, r.dataBytes = nil, 0
	r.lease.Release()
}

// finishEvent notes that an event is complete. A buffer that was large for its sake is not kept.
func (r *Reader) finishEvent() {
	if r.dataBytes = 0; r.lease.Bytes() > 0 && !transport.IsCounted(len(r.buf)) {
		r.buf = bytes.Clone(r.buf)
		r.lease.Release()
	}
}

// An Event is one server-sent event that has data.
type Event struct {
	Type string // "" and "message" are the same
	Data []byte
}

func (e Event) IsMessage() bool { return e.Type == "" || e.Type == "message" }

// pendingEvent is an event of which the blank line at its end is still to come.
type pendingEvent struct {
	Event
	id        string
	lines     int                       // of data
	oversized *transport.OversizedError // the data was too large and is gone
}

// Next returns the next event that has data. An error of type *overlong stands
// for an event that was too large, and reading may go on; every other ends the
// stream, io.EOF if it ended in an orderly way.
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
		case err == io.EOF && (len(d.Data) > 0 || d.oversized != nil):
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

// Each reads on to the end of the stream and calls take with each event, or with the
// error of one that is too large. It reports whether anything has come, and why the
// stream ended.
func (r *Reader) Each(take func(Event, *transport.OversizedError)) (news bool, err error) {
	before := r.LastEventID
	for {
		e, err := r.Next()
		large, isLarge := errors.AsType[*transport.OversizedError](err)
		switch {
		case isLarge:
			take(Event{}, large)
		case err != nil:
			return news || r.LastEventID != before, err
		default:
			take(e, nil)
		}
		news = true
	}
}

var colon, space, dataField = []byte(":"), []byte(" "), []byte("data")

// parseField takes one line of an event. A line that begins with a colon is a
// comment: a field without a name, and passed over like every unknown one.
func (r *Reader) parseField(d *pendingEvent, line []byte) {
	name, value, _ := bytes.Cut(line, colon)
	value = bytes.TrimPrefix(value, space)
	switch string(name) {
	case "data":
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
			d.id = "" // it could not be sent back in Last-Event-ID
		default:
			d.id = string(value)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			r.Retry = time.Duration(ms) * time.Millisecond
		}
	}
}

// addData takes one line of data; the lines are joined by LF. A line's slice has no
// room behind it, so that append copies.
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

// dataTooLarge gives the event up if the line that was too long was data.
func (d *pendingEvent) dataTooLarge(line *transport.OversizedError) {
	name, value, _ := bytes.Cut(line.Head, colon)
	if d.oversized == nil && bytes.Equal(name, dataField) {
		line.Head = bytes.TrimPrefix(value, space)
		d.oversized, d.Data = line, nil
	}
}

// fieldOverhead is more than a data line has beside its data.
const fieldOverhead = 16

// readLine returns the next line without its end, CR LF, LF or CR. It does not wait
// for what follows a CR. A line too long to keep is passed over and reported as
// an *overlong.
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

// consume drops a line of n bytes and the end it has.
func (r *Reader) consume(n int) {
	r.afterCR = r.buf[n] == '\r'
	r.buf = r.buf[n+1:]
}

// lineEnd returns where the first line in b ends, −1 if it does not. It looks
// for both ends window by window, so as not to search all of b for the one while
// each line has the other.
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

func (r *Reader) withoutBOM(line []byte) []byte {
	if r.pastBOM {
		return line
	}
	r.pastBOM = true
	return transport.TrimBOM(line)
}

// skipLine reads on to the end of the line and keeps of it what tells whose it is.
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
		_ = r.fill() // there is room for the least buffer
	}
}

// minRead is the least that a buffer holds. It is small, for most answers are
// short and each has a stream of its own.
const minRead = 4 << 10

// fill reads once. When there is no room left it begins a new buffer, twice as
// large as what it has to carry over: what was handed out stays as it is. It fails,
// and reads nothing, if the ReceiveQuota has no room for such a buffer.
func (r *Reader) fill() error {
	if cap(r.buf)-len(r.buf) < minRead/8 {
		room := max(minRead, min(2*len(r.buf), r.limit+fieldOverhead+minRead))
		if err := r.lease.Resize(room + r.dataBytes); err != nil {
			return err
		}
		r.buf = append(make([]byte, 0, room), r.buf...)
	}
	n, err := r.r.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf, r.err = r.buf[:len(r.buf)+n], err
	return nil
}
