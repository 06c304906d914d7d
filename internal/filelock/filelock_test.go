package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "x.lock")
	holders, most := 0, 0
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			unlock, err := Lock(path, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			holders++
			most = max(most, holders)
			mu.Unlock()
			mu.Lock()
			holders--
			mu.Unlock()
			if err := unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d holders at once", most)
	}
}

func TestLockGivesUpAfterWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := Lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path, time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), path+" is locked by another process") {
		t.Error(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = Lock(path, 0); err != nil {
		t.Fatal("the lock was not released:", err)
	}
	unlock()
}

func TestLockContextEndsWithTheCauseOfItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, err := Lock(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the call was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(2*interval, func() { cancel(cause) })
	if _, err := LockContext(ctx, path); err != cause {
		t.Error(err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = LockContext(ctx, path); err != nil {
		t.Fatal("a free lock does not need time:", err)
	}
	unlock()
}

func TestShareExcludesLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	var unlocks []func() error
	for range 2 {
		unlock, ok, err := TryShare(path)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		unlocks = append(unlocks, unlock)
	}
	for _, unlock := range unlocks {
		if _, ok, err := TryLock(path); ok || err != nil {
			t.Errorf("locked a shared file: %v, %v", ok, err)
		}
		if err := unlock(); err != nil {
			t.Error(err)
		}
	}
	unlock, ok, err := TryLock(path)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, ok, err := TryShare(path); ok || err != nil {
		t.Errorf("shared a locked file: %v, %v", ok, err)
	}
	unlock()
}
