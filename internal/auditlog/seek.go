package auditlog

import (
	"bytes"
	"io"
	"sort"
	"time"
)

// disorder is the difference in time by which a record may be before an earlier record of a
// file. A gateway writes a record some milliseconds after the end of the call, or later if the disk
// stalls, and several gateways may write to one file.
const disorder = time.Minute

// granularity is the number of bytes at which the binary search for a time ends.
const granularity = 64 << 10

// longestProbe bounds the bytes that are searched for a line with a time, at each step of the
// search.
const longestProbe = 1 << 20

// seekTime returns offsets of lines around a time: if times increase, all records from the time on
// are after start, and all records before the time are before end. size is the size of the file.
func (l *scannedFile) seekTime(at time.Time, size int64) (start, end int64) {
	want := at.UnixMicro()
	if us, ok := l.lastTime(size); ok && us < want {
		return size, size
	}
	// the first step after which the next record is not before the time
	steps := size / granularity
	step := int64(sort.Search(int(steps), func(i int) bool {
		us, ok := l.timeAfter(int64(i)*granularity, size)
		return ok && us >= want
	}))
	if step > 1 {
		start = l.lineStart((step-1)*granularity, size)
	}
	if step == steps {
		return start, size
	}
	return start, l.lineStart(step*granularity+1, size)
}

// timeAfter returns the time of the first line that begins after an offset and has a time.
func (l *scannedFile) timeAfter(offset, size int64) (us int64, ok bool) {
	var rec RecordLine
	for length := int64(8 << 10); ; length *= 4 {
		block := make([]byte, min(length, size-offset))
		n, _ := l.f.ReadAt(block, offset)
		block = block[:n]
		if start := bytes.IndexByte(block, '\n'); start >= 0 {
			for line := range bytes.Lines(block[start+1:]) {
				if us, ok := timeOfLine(&rec, line); ok {
					return us, true
				}
			}
		}
		if length >= longestProbe || offset+length >= size {
			return 0, false
		}
	}
}

// lastTime returns the time of the last line of the file.
func (l *scannedFile) lastTime(size int64) (us int64, ok bool) {
	block := make([]byte, min(size, granularity))
	n, err := l.f.ReadAt(block, size-int64(len(block)))
	if err != nil && err != io.EOF {
		return 0, false
	}
	block = block[:n]
	var rec RecordLine
	for len(block) > 0 {
		block = trimEnd(block)
		start := bytes.LastIndexByte(block, '\n') + 1
		if us, ok := timeOfLine(&rec, block[start:]); ok {
			return us, true
		}
		block = block[:start]
	}
	return 0, false
}

// lineStart returns the beginning of the first line that begins at or after an offset above 0, or
// size if there is none.
func (l *scannedFile) lineStart(offset, size int64) int64 {
	block := make([]byte, granularity)
	for at := offset - 1; at < size; at += granularity {
		n, _ := l.f.ReadAt(block, at)
		if start := bytes.IndexByte(block[:n], '\n'); start >= 0 {
			return min(at+int64(start)+1, size)
		}
		if n == 0 {
			break
		}
	}
	return size
}
