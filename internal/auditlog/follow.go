package auditlog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// pollInterval is the time between two looks at a file that is followed.
const pollInterval = 200 * time.Millisecond

// Follow calls found with each selected record that is written after the end of the last call of
// Each, until ctx is done, and returns the cause of ctx. It returns the first error of found. After
// each look at the files it calls flush. It continues in the new file after a rotation, and at the
// beginning of a file that was truncated. The newest file must not be compressed.
func (l *Files) Follow(ctx context.Context, q *Query, found func(*RecordLine) error,
	flush func() error) error {
	m, err := newMatcher(q)
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if err := l.readNew(ctx, m, found); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readNew reads the records that were written since the last look.
func (l *Files) readNew(ctx context.Context, m *matcher, found func(*RecordLine) error) error {
	replaced := l.isReplaced() // before the read, so that the read is complete
	if err := l.readRest(ctx, m, found); err != nil || !replaced {
		return err
	}
	next, err := l.openNext()
	if err != nil || len(next) == 0 {
		return err
	}
	closeAll(l.files)
	l.files, l.end = next, 0
	return l.each(ctx, m, LinePosition{}, found)
}

// isReplaced reports whether another file is at the path, or the first file has appeared.
func (l *Files) isReplaced() bool {
	now, err := os.Stat(l.path)
	if err != nil {
		return false // a rotation is in progress, or the file was removed
	}
	if len(l.files) == 0 {
		return true
	}
	open, err := l.files[len(l.files)-1].f.Stat()
	return err == nil && !os.SameFile(now, open)
}

// openNext opens the files that follow the last one.
func (l *Files) openNext() ([]*scannedFile, error) {
	isLast := func(*scannedFile) bool { return false }
	if len(l.files) > 0 {
		last := l.files[len(l.files)-1]
		last.readFirst() // it may have been empty
		isLast = last.is
	}
	next, err := openRotated(l.path, isLast)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return next, err
}

// readRest reads the rest of the last file.
func (l *Files) readRest(ctx context.Context, m *matcher, found func(*RecordLine) error) error {
	if len(l.files) == 0 {
		return nil
	}
	i := len(l.files) - 1
	switch size := l.files[i].size(); {
	case size < l.end: // truncated
		l.end = 0
	case size == l.end:
		return nil
	}
	r, err := l.files[i].open(l.end)
	if err != nil {
		return l.readError(i, err)
	}
	defer r.Close()
	s := &lineScanner{matcher: m}
	each := func(r *RecordLine, _ int) error { return calleeError(found(r)) }
	l.end, err = s.eachBlock(ctx, r, l.end, false,
		func(block []byte) error { return s.scan(block, each) })
	l.Skipped.add(s.skipped)
	if err != nil {
		return l.readError(i, err)
	}
	return nil
}
