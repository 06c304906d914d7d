package auditlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"mcpgateway/internal/auditfile"
)

const (
	gzipSuffix = ".gz"
	zstdSuffix = ".zst"
)

// maxFiles bounds the files of a Files, which are open at the same time.
const maxFiles = 1001

// maxZstdWindow bounds the memory for the decompression of a file.
const maxZstdWindow = 64 << 20

// A scannedFile is an open file.
type scannedFile struct {
	path   string
	f      *os.File
	suffix string // gzipSuffix, zstdSuffix or ""
	first  firstLine
}

// A firstLine is the beginning of the first line with a time. It identifies the contents of a file,
// whether compressed or not, because a record has a unique call id.
type firstLine struct {
	text string
	at   time.Time // zero = the file has no line with a time
}

// firstSearch bounds the bytes that are searched for the first line with a time.
const firstSearch = 64 << 10

// openFile opens a regular file for reading.
func openFile(path string) (*scannedFile, error) {
	f, err := openShared(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("it is not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	file := &scannedFile{path: path, f: f}
	if suffix := filepath.Ext(path); suffix == gzipSuffix || suffix == zstdSuffix {
		file.suffix = suffix
	}
	file.readFirst()
	return file, nil
}

// readFirst sets first. A file that cannot be read has no first line; Each reports the error.
func (l *scannedFile) readFirst() {
	r, err := l.open(0)
	if err != nil {
		return
	}
	defer r.Close()
	head := make([]byte, firstSearch)
	n, _ := io.ReadFull(r, head)
	var rec RecordLine
	for line := range bytes.Lines(head[:n]) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			return
		}
		if us, ok := timeOfLine(&rec, line); ok {
			l.first = firstLine{string(line[:min(len(line), 512)]), time.UnixMicro(us)}
			return
		}
	}
}

// timeOfLine returns the time of a line, which may end with a line feed.
func timeOfLine(rec *RecordLine, line []byte) (us int64, ok bool) {
	line = trimEnd(line)
	if len(line) == 0 || !looksWhole(line) || !rec.parse(line) {
		return 0, false
	}
	return micros(rec.bytes(Time))
}

func trimEnd(line []byte) []byte { return bytes.TrimRight(line, "\r\n") }

func (l *scannedFile) isPlain() bool { return l.suffix == "" }

// open returns a reader of the contents from an offset, which must be 0 for a compressed file.
func (l *scannedFile) open(offset int64) (io.ReadCloser, error) {
	section := io.NewSectionReader(l.f, offset, 1<<62-offset)
	switch l.suffix {
	case gzipSuffix:
		return gzip.NewReader(section)
	case zstdSuffix:
		d, err := zstd.NewReader(section, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(section), nil
}

func (l *scannedFile) size() int64 {
	info, err := l.f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// is reports whether l and other have the same contents, or one is the other after it was
// compressed or has grown.
func (l *scannedFile) is(other *scannedFile) bool {
	if l.first.text != "" || other.first.text != "" {
		return l.first.text == other.first.text
	}
	a, errA := l.f.Stat()
	b, errB := other.f.Stat()
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// openRotated opens the file at path, if it exists, and the files that were rotated before it: the
// oldest is first. It opens the newest first, so that a rotation meanwhile hides no file; a file
// that it finds again under another name is left out. It ends at the file for which isKnown returns
// true. A missing directory is an error.
func openRotated(path string, isKnown func(*scannedFile) bool) (all []*scannedFile, err error) {
	defer func() {
		if err != nil {
			closeAll(all)
			all = nil
		}
		slices.Reverse(all)
	}()
	current, err := openFile(path)
	switch {
	case err == nil && isKnown(current):
		current.f.Close()
		return nil, nil
	case err == nil:
		all = append(all, current)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	paths, err := auditfile.Files(path)
	if err != nil {
		return all, err
	}
	for _, former := range slices.Backward(paths) {
		if former == path {
			continue
		}
		file, err := openFile(former)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // rotated or removed meanwhile
		case err != nil:
			return all, err
		case slices.ContainsFunc(all, file.is):
			file.f.Close()
			continue
		case isKnown(file):
			file.f.Close()
			return all, nil
		case len(all) == maxFiles:
			file.f.Close()
			return all, fmt.Errorf("%s has more than %d rotated files", path, maxFiles-1)
		}
		all = append(all, file)
	}
	return all, nil
}

func closeAll(all []*scannedFile) {
	for _, l := range all {
		l.f.Close()
	}
}
