package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// SIGHUP may come while cp has emptied the file and not yet written it. That is waited for, and what stays empty not for ever.
func TestHangupWaitsForAFileThatIsBeingWritten(t *testing.T) {
	for _, gone := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		if !gone {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			r := &reloader{source: path}
			var writing sync.WaitGroup
			writing.Go(func() {
				time.Sleep(quietTime / 2)
				if err := os.WriteFile(path, []byte("backends: []"), 0o600); err != nil {
					t.Error(err)
				}
			})
			r.settle(t.Context())
			if isVoid(path) {
				t.Error("it was not waited for")
			}
			writing.Wait()
			began := time.Now()
			r.settle(t.Context())
			if time.Since(began) != 0 {
				t.Error("what is there was waited for")
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			r.settle(t.Context())
			if took := time.Since(began); took != burstTime {
				t.Errorf("it was waited for %v", took)
			}
			over, end := context.WithCancel(t.Context())
			end()
			r.settle(over)
			if (&reloader{}).settle(t.Context()); time.Since(began) != burstTime {
				t.Error("what need not be waited for was")
			}
		})
	}
}
