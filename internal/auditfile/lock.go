package auditfile

import (
	"errors"
	"io/fs"
	"time"

	"mcpgateway/internal/filelock"
)

// The times to wait for path.lock. Other processes hold it only for some system calls. With linked
// lines, an append without the lock may give two lines the same number, which a
// auditchain.ChainVerifier reports.
const (
	lockWait      = time.Second
	chainLockWait = 10 * time.Second
	lockInterval  = time.Millisecond
)

var errLocked = errors.New("another process holds the lock of the file")

// A pathLock is path.lock of an audit file, as a File uses it. A device has no lock.
type pathLock struct {
	path     string
	isDevice bool
	timedOut bool // the last wait of lock was in vain
}

// lock takes the lock, alone or shared. After a wait in vain, it does not wait until it has had the
// lock again. If ok is true, the caller calls unlock.
func (l *pathLock) lock(alone bool, wait time.Duration) (unlock func(), ok bool, err error) {
	if l.timedOut {
		wait = 0
	}
	unlock, ok, err = l.try(alone, wait)
	l.timedOut = err == errLocked
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // of the directory, which File.prepare creates
	}
	return unlock, ok, err
}

// try takes the lock and waits at most wait. It may be called concurrently.
func (l *pathLock) try(alone bool, wait time.Duration) (unlock func(), ok bool, err error) {
	if l.isDevice {
		return nil, false, nil
	}
	try := filelock.TryShare
	if alone {
		try = filelock.TryLock
	}
	deadline := time.Now().Add(wait)
	for {
		unlock, ok, err := try(l.path)
		switch {
		case ok:
			return func() { _ = unlock() }, true, nil
		case err != nil:
			return nil, false, err
		case !time.Now().Before(deadline):
			return nil, false, errLocked
		}
		time.Sleep(lockInterval)
	}
}
