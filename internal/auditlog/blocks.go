package auditlog

import (
	"bytes"
	"context"
	"io"
)

// Skipped counts the lines that were not read.
type Skipped struct {
	Lines int64 // not a record, because a part is missing or the line is something else
	Long  int64 // longer than maxLine
}

func (s *Skipped) add(other Skipped) {
	s.Lines += other.Lines
	s.Long += other.Long
}

// A lineScanner selects records in blocks of lines.
type lineScanner struct {
	*matcher
	rec     RecordLine
	skipped Skipped
	hits    []int // for each needle: its first position after the current line
}

// scan calls found with each selected record of a block, and its offset in the block. The block
// ends with a line feed, or with the last line of a file.
func (s *lineScanner) scan(block []byte, found func(r *RecordLine, at int) error) error {
	s.hits = s.hits[:0]
	for range s.needles {
		s.hits = append(s.hits, -1)
	}
	for at := 0; at < len(block); {
		end, next := len(block), len(block)
		if n := bytes.IndexByte(block[at:], '\n'); n >= 0 {
			end, next = at+n, at+n+1
		}
		line := block[at:end]
		if len(line) > 0 && line[len(line)-1] == '\r' {
			line = line[:len(line)-1]
		}
		switch {
		case len(line) == 0:
		case len(line) > maxLine:
			s.skipped.Long++
		case !looksWhole(line):
			s.skipped.Lines++
		case !s.mayMatch(block, at, end):
		case !s.rec.parse(line):
			s.skipped.Lines++
		case s.matches(&s.rec):
			if err := found(&s.rec, at); err != nil {
				return err
			}
		}
		at = next
	}
	return nil
}

// mayMatch reports whether the line block[at:end] contains a needle.
func (s *lineScanner) mayMatch(block []byte, at, end int) bool {
	if len(s.needles) == 0 {
		return true
	}
	for i, needle := range s.needles {
		if s.hits[i] < at {
			s.hits[i] = len(block)
			if n := bytes.Index(block[at:], needle); n >= 0 {
				s.hits[i] = at + n
			}
		}
		if s.hits[i] < end {
			return true
		}
	}
	return false
}

// blockSize is the number of bytes that are read at once.
const blockSize = 128 << 10

// eachBlock reads r from an offset in blocks of whole lines, and calls handle with each block. It
// returns the offset after the last complete line. An incomplete line at the end is passed to
// handle only if partial is true. A line that is longer than maxLine is skipped.
func (s *lineScanner) eachBlock(ctx context.Context, r io.Reader, offset int64, partial bool,
	handle func(block []byte) error) (end int64, err error) {
	buf := make([]byte, blockSize)
	n := 0 // bytes in buf, a part of a line
	tooLong := false
	for {
		if ctx.Err() != nil {
			return offset, context.Cause(ctx)
		}
		got, readErr := fill(r, buf[n:])
		n += got
		whole := bytes.LastIndexByte(buf[:n], '\n') + 1
		from := 0
		if tooLong && whole > 0 {
			from = bytes.IndexByte(buf, '\n') + 1
			tooLong = false
		}
		if from < whole {
			if err := handle(buf[from:whole]); err != nil {
				return offset, err
			}
		}
		offset += int64(whole)
		n = copy(buf, buf[whole:n])
		switch {
		case readErr == nil && n == len(buf) && n < maxLine:
			buf = append(buf, make([]byte, len(buf))...)
		case readErr == nil && n == len(buf):
			if !tooLong {
				s.skipped.Long++
			}
			tooLong, n, offset = true, 0, offset+int64(n)
		case readErr == io.EOF:
			if n > 0 && partial && !tooLong {
				return offset + int64(n), handle(buf[:n])
			}
			return offset, nil
		case readErr != nil:
			return offset, readErr
		}
	}
}

// fill reads until buf is full, or the reader returns an error.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var got int
		got, err = r.Read(buf[n:])
		n += got
	}
	if n == len(buf) {
		err = nil // the next Read returns it again
	}
	return n, err
}
