package auditlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"
)

// A Files is a sequence of open files, the oldest first.
type Files struct {
	// Skipped counts the lines that Each and Follow have skipped.
	Skipped Skipped

	path  string // of the newest file, which may be missing
	files []*scannedFile
	end   int64 // end of what was read of the last file
}

// Open opens the audit file at path and the files that were rotated before it. It returns an error
// if there is none of them.
func Open(path string) (*Files, error) {
	files, err := openRotated(path, func(*scannedFile) bool { return false })
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return &Files{path: path, files: files}, nil
}

// OpenNew is like Open, but there may be no file yet: Follow waits for it.
func OpenNew(path string) (*Files, error) {
	l, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Files{path: path}, nil
	}
	return l, err
}

// OpenFiles opens exactly these files, in the order of their first records. A file that is there in
// two forms, compressed and not, is read once.
func OpenFiles(paths []string) (*Files, error) {
	l := &Files{}
	if len(paths) > maxFiles {
		return nil, fmt.Errorf("there are more than %d files", maxFiles)
	}
	for _, path := range paths {
		file, err := openFile(path)
		if err != nil {
			l.Close()
			return nil, err
		}
		if slices.ContainsFunc(l.files, file.is) {
			file.f.Close()
			continue
		}
		l.files = append(l.files, file)
	}
	slices.SortStableFunc(l.files, func(a, b *scannedFile) int {
		return cmp.Compare(a.first.at.UnixMicro(), b.first.at.UnixMicro())
	})
	if len(l.files) > 0 {
		l.path = l.files[len(l.files)-1].path
	}
	return l, nil
}

// Close closes the files.
func (l *Files) Close() { closeAll(l.files) }

// A LinePosition is a position in a Files; zero = its beginning.
type LinePosition struct {
	file   int
	offset int64 // of a line, in a file that is not compressed
	skip   int   // selected records to skip, in a compressed file
}

// Each calls found with each record that a Query selects, from a position on. It returns the first
// error of found, or the cause of ctx when ctx is done.
func (l *Files) Each(ctx context.Context, q *Query, from LinePosition,
	found func(*RecordLine) error) error {
	m, err := newMatcher(q)
	if err != nil {
		return err
	}
	return l.each(ctx, m, from, found)
}

func (l *Files) each(ctx context.Context, m *matcher, from LinePosition,
	found func(*RecordLine) error) error {
	for i := from.file; i < len(l.files); i++ {
		if !l.mayContain(i, m) && i < len(l.files)-1 {
			continue
		}
		start := LinePosition{}
		if i == from.file {
			start = from
		}
		s := &lineScanner{matcher: m}
		err := l.eachInFile(ctx, i, s, start, found)
		l.Skipped.add(s.skipped)
		if err != nil {
			return l.readError(i, err)
		}
	}
	return nil
}

// eachInFile calls found with each selected record of a file. For the last file it sets end.
func (l *Files) eachInFile(ctx context.Context, i int, s *lineScanner, start LinePosition,
	found func(*RecordLine) error) error {
	file := l.files[i]
	from, to := int64(0), int64(1<<62)
	if file.isPlain() {
		from, to = file.timeRange(s.matcher)
		from = max(from, start.offset)
	}
	r, err := file.open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	skip := start.skip
	workers := startWorkers(s, func(r *RecordLine) error {
		if skip > 0 {
			skip--
			return nil
		}
		return calleeError(found(r))
	})
	defer workers.stop()
	isLast := i == len(l.files)-1 && file.isPlain()
	partial := !isLast || !file.mayGrow()
	end, err := s.eachBlock(ctx, io.LimitReader(r, max(to-from, 0)), from, partial,
		workers.scan)
	if err == nil {
		err = workers.finish()
	}
	if isLast {
		l.end = end
	}
	return err
}

// mayGrow reports whether the last line may be incomplete because it is being written now. A line
// that was written a minute ago does not change.
func (l *scannedFile) mayGrow() bool {
	info, err := l.f.Stat()
	return err == nil && time.Since(info.ModTime()) < time.Minute
}

// foundError is an error of the function that got a record.
type foundError struct{ error }

func calleeError(err error) error {
	if err == nil {
		return nil
	}
	return foundError{err}
}

// readError adds the path of a file to an error, except to an error of the caller.
func (l *Files) readError(i int, err error) error {
	if own, is := errors.AsType[foundError](err); is {
		return own.error
	}
	if _, is := errors.AsType[*fs.PathError](err); is || errors.Is(err, context.Canceled) {
		return err
	}
	return &fs.PathError{Op: "read", Path: l.files[i].path, Err: err}
}

// mayContain reports whether a file may contain records in the time range of m.
func (l *Files) mayContain(i int, m *matcher) bool {
	slack := disorder.Microseconds()
	first := l.files[i].first.at
	if m.until != 0 && !first.IsZero() && first.UnixMicro() >= m.until+slack {
		return false
	}
	// The records of a file are older than those of the next one.
	if i+1 < len(l.files) && m.since != 0 {
		if next := l.files[i+1].first.at; !next.IsZero() && next.UnixMicro() < m.since-slack {
			return false
		}
	}
	return true
}

// timeRange returns the part of a file, by offsets of lines, in which the records in the time range
// of m are.
func (l *scannedFile) timeRange(m *matcher) (from, to int64) {
	size := l.size()
	to = size
	if m.since != 0 {
		from, _ = l.seekTime(time.UnixMicro(m.since).Add(-disorder), size)
	}
	if m.until != 0 {
		_, to = l.seekTime(time.UnixMicro(m.until).Add(disorder), size)
	}
	return from, max(from, to)
}

// EachLogLine calls found with each line about a backend in a log, from since until before until.
// Audit records are left out. Otherwise it is like Each.
func (l *Files) EachLogLine(ctx context.Context, backend string, since, until time.Time,
	found func(*RecordLine) error) error {
	m, err := newMatcher(&Query{Since: since, Until: until, Backends: []string{Literal(backend)}})
	if err != nil {
		return err
	}
	m.logLines = true
	return l.each(ctx, m, LinePosition{}, func(r *RecordLine) error {
		if r.isCall() {
			return nil
		}
		return found(r)
	})
}
