package auditfile

import (
	"bytes"
	"os"
	"time"
)

// An openFile is the file to which a File appends.
type openFile struct {
	*os.File
	torn   bool      // the last line is incomplete and must be ended before the next one
	oldest time.Time // time of the first line; zero = unknown
}

// append writes p with one write(2). It first ends a line that an earlier write has left
// incomplete.
func (f *openFile) append(p []byte) (int, error) {
	newline := 0
	if f.torn {
		newline = 1
		p = bytes.Join([][]byte{{'\n'}, p}, nil)
	}
	n, err := f.Write(p)
	if n > 0 {
		f.torn = p[n-1] != '\n'
	}
	return max(0, n-newline), err
}

// maxSearchedTime bounds the bytes that are read in search of the time of the first line.
const maxSearchedTime = 64 << 10

// firstTime returns the time of the first line in the file that has a time. If no line has
// one, or the clock was set back since, firstTime returns now: the age counts from this moment.
func (f *openFile) firstTime(now time.Time) time.Time {
	start := make([]byte, maxSearchedTime)
	n, _ := f.ReadAt(start, 0)
	for line := range bytes.Lines(start[:n]) {
		rest, ok := bytes.CutPrefix(line, []byte(`{"time":"`))
		end := bytes.IndexByte(rest, '"')
		if !ok || end < 0 {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, string(rest[:end]))
		if err == nil && at.Before(now) {
			return at
		}
	}
	return now
}

// endsWithinLine reports whether the last line of the file has no line feed.
func (f *openFile) endsWithinLine() bool {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}
