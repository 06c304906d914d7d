package transport

import (
	"bytes"
	"errors"
	"io"

	"mcpgateway/wire"
)

// chunk is how much a lineReader asks for at a time: what a pipe holds.
const chunk = 64 << 10

// A lineReader cuts a stream into lines. Each line is a slice of its own: what
// a lineReader has handed out it never touches again, so that a message may be
// kept without a copy. Short lines share a chunk.
type lineReader struct {
	r     io.Reader
	limit int
	buf   []byte      // read and not yet handed out
	burst *wire.Burst // of the lines that are whole in buf, and of the last that was handed out; nil = there was one alone
	bom   bool        // the place where a byte order mark may stand is passed
	err   error

	// What is no UTF-8 is noise, unless mend is set: then each bad byte becomes
	// U+FFFD, and mended, if there is one, is called.
	mend   bool
	mended func()
}

// next returns the next line without its end, CR LF or LF; the stream's last
// line needs none. A line that is longer than the limit is skipped and reported
// as an *overlong. At the end of the stream it returns io.EOF.
func (l *lineReader) next() ([]byte, error) {
	scanned := 0
	for {
		if i := bytes.IndexByte(l.buf[scanned:], '\n'); i >= 0 {
			line := l.buf[: scanned+i : scanned+i]
			l.buf = l.buf[scanned+i+1:]
			l.gather()
			l.shed(len(line))
			if len(line) > l.limit {
				return nil, newOverlong(line, l.limit)
			}
			return l.trim(line), nil
		}
		l.burst.End()
		l.burst = nil
		if scanned = len(l.buf); scanned > l.limit {
			return nil, l.skip()
		}
		if l.err != nil {
			if scanned > 0 {
				line := l.buf
				l.buf = nil
				return l.trim(line), nil
			}
			return nil, l.err
		}
		l.fill()
	}
}

// gather begins a burst if a further line is whole.
func (l *lineReader) gather() {
	if l.burst == nil && bytes.IndexByte(l.buf, '\n') >= 0 {
		l.burst = new(wire.Burst)
	}
}

// fill reads once. When the chunk is used up it starts a new one, twice as
// large as what it has to carry over.
func (l *lineReader) fill() {
	if cap(l.buf)-len(l.buf) < 512 {
		grown := make([]byte, len(l.buf), max(chunk, 2*len(l.buf)))
		copy(grown, l.buf)
		l.buf = grown
	}
	n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	l.err = err
}

// shed takes what was read behind a long line out of the array that was made for that, which
// would be kept for as long as any line that follows.
func (l *lineReader) shed(long int) {
	if long > chunk && len(l.buf) <= chunk {
		l.buf = append(make([]byte, 0, chunk), l.buf...)
	}
}

func (l *lineReader) trim(line []byte) []byte {
	if !l.bom {
		l.bom = true
		line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
	}
	return bytes.TrimSuffix(line, []byte("\r"))
}

// An overlong is a line that was too long to keep.
type overlong struct {
	head []byte
	id   wire.ID // the id of the message in it, if there is one
}

func (o *overlong) Error() string { return "line too long" }

func newOverlong(text []byte, limit int) *overlong {
	var skim wire.Skimmer
	skim.Write(text)
	return &overlong{head: head(text, limit), id: skim.ID()}
}

// head returns a copy of how an overlong text begins. That it is overlong may be
// known before more of it is.
func head(text []byte, limit int) []byte {
	return bytes.Clone(text[:min(len(text), maxNoise, limit+1)])
}

// skip reads on to the end of an overlong line and keeps of it what tells whose
// it is.
func (l *lineReader) skip() error {
	over := &overlong{head: head(l.buf, l.limit)}
	var skim wire.Skimmer
	skim.Write(l.buf)
	l.buf = make([]byte, 0, chunk)
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
	over.id = skim.ID()
	return over
}

// readMessage returns the next message of a stream of lines; blank lines are
// skipped. It is the Read of every Conn over pipes.
func (l *lineReader) readMessage() (wire.Message, error) {
	for {
		line, err := l.next()
		var over *overlong
		switch {
		case errors.As(err, &over):
			return wire.Message{}, over.noise(l.limit)
		case err != nil:
			return wire.Message{}, err
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		m, err := wire.Parse(line)
		if l.mend && errors.Is(err, wire.ErrUTF8) {
			if m, err = wire.Parse(wire.Mend(line)); err == nil && l.mended != nil {
				l.mended()
			}
		}
		if err != nil {
			return m, NewNoise(line, m, err)
		}
		return m.In(l.burst), nil
	}
}
