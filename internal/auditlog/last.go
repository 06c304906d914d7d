package auditlog

import (
	"context"
	"io"
	"slices"
)

// Last returns the position of the last n records that a Query selects, or of the first one if
// there are fewer. It reports whether there are more records before the position. It reads files
// from their end, unless they are compressed.
func (l *Files) Last(ctx context.Context, q *Query, n int) (at LinePosition, more bool, err error) {
	m, err := newMatcher(q)
	if err != nil {
		return LinePosition{}, false, err
	}
	for i := len(l.files) - 1; i >= 0; i-- {
		if !l.mayContain(i, m) {
			continue
		}
		s := &lineScanner{matcher: m}
		found, count := LinePosition{file: i}, 0
		if l.files[i].isPlain() {
			found.offset, count, err = l.files[i].lastOffset(ctx, s, n)
		} else if count, err = l.countRecords(ctx, i, s); count > n {
			found.skip = count - n
		}
		if err != nil {
			return LinePosition{}, false, l.readError(i, err)
		}
		if n > 0 && count > 0 {
			at = found
		}
		if count > n {
			return at, true, nil
		}
		n -= count
	}
	return at, false, nil
}

// countRecords returns the number of selected records of a compressed file.
func (l *Files) countRecords(ctx context.Context, i int, s *lineScanner) (n int, err error) {
	err = l.eachInFile(ctx, i, s, LinePosition{}, func(*RecordLine) error { n++; return nil })
	return n, err
}

// lastOffset searches a file from its end for n selected records and one more. It returns the
// offset of the first of the last n, and the number of records found, at most n+1.
func (l *scannedFile) lastOffset(ctx context.Context, s *lineScanner, n int) (
	at int64, count int, err error,
) {
	from, end := l.timeRange(s.matcher)
	at = from
	var buf []byte
	for length := int64(blockSize); end > from; {
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		start := max(from, end-length)
		begin := start // of the first line
		if start > from {
			begin = l.lineStart(start, end)
			if begin == end && length < maxLine {
				length *= 2 // the line is longer
				continue
			}
		}
		buf = slices.Grow(buf[:0], int(end-begin))[:end-begin]
		got, err := l.f.ReadAt(buf, begin)
		if err != nil && err != io.EOF {
			return 0, 0, err
		}
		var offsets []int64
		err = s.scan(buf[:got], func(_ *RecordLine, offset int) error {
			offsets = append(offsets, begin+int64(offset))
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
		if wanted := n - count; wanted > 0 && len(offsets) > 0 {
			at = offsets[max(0, len(offsets)-wanted)]
		}
		if count += len(offsets); count > n {
			return at, n + 1, nil
		}
		if begin == end { // a line that is too long
			begin = start
		}
		end, length = begin, blockSize
	}
	return at, count, nil
}
