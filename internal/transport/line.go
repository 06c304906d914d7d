package transport

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"

	"mcpgateway/internal/wire"
)

// chunkSize is the size of the read buffer in bytes: the capacity of a pipe.
const chunkSize = 64 << 10

// chunkPool holds unused arrays for lines that are longer than one chunk.
var chunkPool = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// A LineReader splits a stream into lines. It never modifies a line that it has returned, so a
// message may be kept without a copy. Short lines share a chunk.
type LineReader struct {
	r     io.Reader
	limit int
	lease ReceiveLease // counts the bytes of a line longer than one chunk
	err   error        // error of the last read, returned after the content of buf

	// A line longer than one chunk consists of head, parts and buf, in this order.
	head     []byte             // content of the first chunk
	parts    []*[chunkSize]byte // full chunks
	buf      []byte             // bytes read but not returned yet
	quotaErr error              // error of an exceeded quota; nil = not exceeded

	// burst is the burst of the complete lines in buf and of the line returned last; nil = no
	// burst: the line came alone.
	burst *wire.Burst

	repairUTF8 bool // see LineOptions
	onRepair   func()
}

// LineOptions configure a [LineReader].
type LineOptions struct {
	Limit      int           // maximum bytes of one line
	Quota      *ReceiveQuota // counts bytes of incomplete lines; nil = no bound
	RepairUTF8 bool          // replace invalid UTF-8 by U+FFFD; false = MalformedError
	OnRepair   func()        // called after each repair; may be nil
}

// NewLineReader returns a reader of the lines of r.
func NewLineReader(r io.Reader, o LineOptions) *LineReader {
	return &LineReader{
		r: r, limit: o.Limit,
		lease:      o.Quota.Lease(),
		repairUTF8: o.RepairUTF8,
		onRepair:   o.OnRepair,
	}
}

// next returns the next line without its line end, CR LF or LF; the last line of the stream needs
// no line end. A line that exceeds the limit or the quota is skipped and reported as an
// *OversizedError. At the end of the stream the method next returns the error of the last read,
// io.EOF if the stream ended in an orderly way.
func (l *LineReader) next() ([]byte, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(l.buf[scanned:], '\n'); i >= 0 {
			line := l.take(scanned + i)
			l.buf = l.buf[1:]
			l.startBurst()
			if len(line) > l.limit {
				return nil, NewOversizedError(line, l.limit)
			}
			return l.trim(line), nil
		}
		l.burst.End()
		l.burst = nil
		switch scanned = len(l.buf); {
		case l.longLen()+scanned > l.limit || l.quotaErr != nil:
			return nil, l.skipLine()
		case l.err != nil && l.longLen()+scanned > 0:
			return l.trim(l.take(scanned)), nil
		case l.err != nil:
			return nil, l.err
		case l.fill():
			scanned = 0
		}
	}
}

// take removes and returns the line that ends at buf[n].
func (l *LineReader) take(n int) []byte {
	end := l.buf[:n:n]
	l.buf = l.buf[n:]
	if l.longLen() == 0 {
		return end
	}
	all := append(make([][]byte, 0, len(l.parts)+2), l.head)
	for _, part := range l.parts {
		all = append(all, part[:])
	}
	line := bytes.Join(append(all, end), nil)
	l.dropLong()
	return line
}

// longLen returns the number of bytes in the fields head and parts.
func (l *LineReader) longLen() int { return len(l.head) + len(l.parts)*chunkSize }

// dropLong discards the content of the fields head and parts.
func (l *LineReader) dropLong() {
	for _, part := range l.parts {
		chunkPool.Put(part)
	}
	clear(l.parts)
	l.head, l.parts, l.quotaErr = nil, l.parts[:0], nil
	l.lease.Release()
}

// startBurst starts a burst if buf contains a further complete line.
func (l *LineReader) startBurst() {
	if l.burst == nil && bytes.IndexByte(l.buf, '\n') >= 0 {
		l.burst = new(wire.Burst)
	}
}

// fill reads once. If the chunk is full or nearly full, fill first starts a new chunk: it copies a
// short incomplete line to the new chunk; for a longer line it moves the content of the chunk to
// head or parts, and returns true.
func (l *LineReader) fill() (moved bool) {
	if free := cap(l.buf) - len(l.buf); free == 0 || free < 512 && l.longLen() == 0 {
		switch {
		case len(l.buf) <= chunkSize/2 && l.longLen() == 0:
			l.buf = append(make([]byte, 0, chunkSize), l.buf...)
		case l.longLen() == 0:
			l.head, l.buf, moved = l.buf, newChunk(), true
		default:
			l.parts, l.buf, moved = append(l.parts, (*[chunkSize]byte)(l.buf)), newChunk(), true
		}
	}
	if moved {
		l.quotaErr = l.lease.Resize(l.longLen() + chunkSize)
	}
	n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	l.err = err
	return moved
}

func newChunk() []byte { return chunkPool.Get().(*[chunkSize]byte)[:0] }

// trim removes a leading byte order mark and a trailing CR, which some writers add to each line.
func (l *LineReader) trim(line []byte) []byte {
	return bytes.TrimSuffix(TrimBOM(line), []byte("\r"))
}

// An OversizedError is returned for a line or event that was skipped because it exceeds the limit
// or a quota.
type OversizedError struct {
	Head   []byte  // beginning of the line or event
	ID     wire.ID // id found in the line or event; "" = none
	Reason error   // exceeded quota; nil = the limit was exceeded
}

func (o *OversizedError) Error() string { return "line too long" }

// NewOversizedError returns the error for a text that exceeds limit.
func NewOversizedError(text []byte, limit int) *OversizedError {
	var skim wire.Skimmer
	skim.Write(text)
	return &OversizedError{Head: CopyHead(text, limit), ID: skim.ID()}
}

// CopyHead returns a copy of the beginning of a text that is too long: at most one byte more than
// limit, and at most maxMalformed bytes. text may be incomplete.
func CopyHead(text []byte, limit int) []byte {
	return bytes.Clone(text[:min(len(text), maxMalformed, limit+1)])
}

// skipLine reads to the end of a line that is too long. It returns an *OversizedError with the
// beginning of the line and the id of the message in the line.
func (l *LineReader) skipLine() error {
	head := CopyHead(slices.Concat(l.head, l.buf), l.limit)
	over := &OversizedError{Head: head, Reason: l.quotaErr}
	var skim wire.Skimmer
	skim.Write(l.head)
	for _, part := range l.parts {
		skim.Write(part[:])
	}
	skim.Write(l.buf)
	l.dropLong()
	l.buf = make([]byte, 0, chunkSize)
	for l.err == nil {
		l.fill()
		if i := bytes.IndexByte(l.buf, '\n'); i >= 0 {
			skim.Write(l.buf[:i])
			l.buf = l.buf[i+1:]
			break
		}
		skim.Write(l.buf)
		l.buf = l.buf[:0]
	}
	over.ID = skim.ID()
	return over
}

// ReadMessage returns the message in the next line that is not blank. A line that is too long or
// not a message is reported as a [*MalformedError]. ReadMessage implements Read for every Conn over
// pipes.
func (l *LineReader) ReadMessage() (wire.Message, error) {
	for {
		line, err := l.next()
		if over, ok := err.(*OversizedError); ok {
			return wire.Message{}, over.Malformed(l.limit)
		}
		if err != nil {
			return wire.Message{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		m, err := wire.Parse(line)
		if l.repairUTF8 && errors.Is(err, wire.ErrUTF8) {
			if m, err = wire.Parse(wire.ReplaceInvalidUTF8(line)); err == nil && l.onRepair != nil {
				l.onRepair()
			}
		}
		if err != nil {
			return m, NewMalformedError(line, m, err)
		}
		return m.WithBurst(l.burst), nil
	}
}
