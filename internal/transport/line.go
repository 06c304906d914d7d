package transport

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"

	"mcpgateway/internal/wire"
)

// chunkSize is how much a LineReader asks for at a time: what a pipe holds.
const chunkSize = 64 << 10

// chunkPool are arrays that nobody holds any more: what long lines are read into before their length is known.
var chunkPool = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// A LineReader cuts a stream into lines. Each line is a slice of its own: what
// a LineReader has handed out it never touches again, so that a message may be
// kept without a copy. Short lines share a chunk.
type LineReader struct {
	r        io.Reader
	limit    int
	buf      []byte             // read and not yet handed out, behind parts
	parts    []*[chunkSize]byte // of a long line, whole ones
	head     []byte             // how that begins, before parts
	burst    *wire.Burst        // of the lines that are whole in buf, and of the last that was handed out; nil = there was one alone
	err      error
	lease    ReceiveLease
	quotaErr error // why there is no room for the line at hand

	// What is no UTF-8 is noise, unless mend is set: then each bad byte becomes
	// U+FFFD, and mended, if there is one, is called.
	repairUTF8 bool
	onRepair   func()
}

// LineOptions configure a [LineReader].
type LineOptions struct {
	Limit      int           // maximum bytes of one line
	Quota      *ReceiveQuota // counts bytes of incomplete lines; nil = no bound
	RepairUTF8 bool          // replace invalid UTF-8 by U+FFFD instead of reporting a MalformedError
	OnRepair   func()        // called after each repair; may be nil
}

// NewLineReader returns a reader of the lines of r.
func NewLineReader(r io.Reader, o LineOptions) *LineReader {
	return &LineReader{r: r, limit: o.Limit, lease: o.Quota.Lease(), repairUTF8: o.RepairUTF8, onRepair: o.OnRepair}
}

// next returns the next line without its end, CR LF or LF; the stream's last
// line needs none. A line that is longer than the limit is skipped and reported
// as an *overlong. At the end of the stream it returns io.EOF.
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

// take returns the line that ends at n in buf.
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

// longLen is how much of a line is in first and parts.
func (l *LineReader) longLen() int { return len(l.head) + len(l.parts)*chunkSize }

// dropLong forgets what there is of a long line, but for what is in buf.
func (l *LineReader) dropLong() {
	for _, part := range l.parts {
		chunkPool.Put(part)
	}
	clear(l.parts)
	l.head, l.parts, l.quotaErr = nil, l.parts[:0], nil
	l.lease.Release()
}

// startBurst begins a burst if a further line is whole.
func (l *LineReader) startBurst() {
	if l.burst == nil && bytes.IndexByte(l.buf, '\n') >= 0 {
		l.burst = new(wire.Burst)
	}
}

// fill reads once. When the chunk is used up it starts a new one, and carries what it has of a line over to it; of a
// long line it puts that aside, and reports that.
func (l *LineReader) fill() (aside bool) {
	if room := cap(l.buf) - len(l.buf); room == 0 || room < 512 && l.longLen() == 0 {
		switch {
		case len(l.buf) <= chunkSize/2 && l.longLen() == 0:
			l.buf = append(make([]byte, 0, chunkSize), l.buf...)
		case l.longLen() == 0:
			l.head, l.buf, aside = l.buf, newChunk(), true
		default:
			l.parts, l.buf, aside = append(l.parts, (*[chunkSize]byte)(l.buf)), newChunk(), true
		}
	}
	if aside {
		l.quotaErr = l.lease.Resize(l.longLen() + chunkSize)
	}
	n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	l.err = err
	return aside
}

func newChunk() []byte { return chunkPool.Get().(*[chunkSize]byte)[:0] }

// trim removes what some writers put around each text: a byte order mark in front, a CR behind.
func (l *LineReader) trim(line []byte) []byte {
	return bytes.TrimSuffix(TrimBOM(line), []byte("\r"))
}

// An OversizedError is a line that was too long to keep.
type OversizedError struct {
	Head   []byte
	ID     wire.ID // the id of the message in it, if there is one
	Reason error   // why it is not kept, if it is not longer than the limit
}

func (o *OversizedError) Error() string { return "line too long" }

func NewOversizedError(text []byte, limit int) *OversizedError {
	var skim wire.Skimmer
	skim.Write(text)
	return &OversizedError{Head: CopyHead(text, limit), ID: skim.ID()}
}

// CopyHead returns a copy of how an overlong text begins. That it is overlong may be
// known before more of it is.
func CopyHead(text []byte, limit int) []byte {
	return bytes.Clone(text[:min(len(text), maxMalformed, limit+1)])
}

// skipLine reads on to the end of an overlong line and keeps of it what tells whose
// it is.
func (l *LineReader) skipLine() error {
	over := &OversizedError{Head: CopyHead(slices.Concat(l.head, l.buf), l.limit), Reason: l.quotaErr}
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

// ReadMessage returns the next message of a stream of lines; blank lines are
// skipped. It is the Read of every Conn over pipes.
func (l *LineReader) ReadMessage() (wire.Message, error) {
	for {
		line, err := l.next()
		var over *OversizedError
		switch {
		case errors.As(err, &over):
			return wire.Message{}, over.Malformed(l.limit)
		case err != nil:
			return wire.Message{}, err
		case len(bytes.TrimSpace(line)) == 0:
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
