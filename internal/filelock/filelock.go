// Package filelock locks files between processes. The kernel releases the lock of a process that
// died. A lock file must never be removed, because two processes could then hold two different
// locks.
package filelock

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// interval is the time between two attempts of LockContext.
const interval = 20 * time.Millisecond

// Lock takes the lock of the file at path, like LockContext. It waits at most wait.
func Lock(path string, wait time.Duration) (unlock func() error, err error) {
	errTooLong := fmt.Errorf("%s is locked by another process, for more than %s", path, wait)
	ctx, cancel := context.WithTimeoutCause(context.Background(), wait, errTooLong)
	defer cancel()
	return LockContext(ctx, path)
}

// LockContext takes the lock of the file at path, and creates the file (0600) and missing
// directories (0700). It waits while another process, or another call in this process, holds the
// lock; if ctx is done first, it returns the cause of ctx. The caller calls unlock exactly once.
func LockContext(ctx context.Context, path string) (unlock func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		unlock, ok, err := TryLock(path)
		if err != nil || ok {
			return unlock, err
		}
		select {
		case <-timer.C:
			timer.Reset(interval)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
