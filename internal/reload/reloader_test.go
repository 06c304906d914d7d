package reload

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// SIGHUP may arrive after cp has truncated the file and before cp writes it. The reload waits for
// the content, for a limited time.
func TestReloadWaitsForEmptyFile(t *testing.T) {
	for _, gone := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "gateway.yaml")
		if !gone {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Test(t, func(t *testing.T) {
			r := &Reloader{source: path}
			var writing sync.WaitGroup
			writing.Go(func() {
				time.Sleep(quietPeriod / 2)
				if err := os.WriteFile(path, []byte("backends: []"), 0o600); err != nil {
					t.Error(err)
				}
			})
			r.awaitContent(t.Context())
			if isMissingOrEmpty(path) {
				t.Error("awaitContent did not wait for the content")
			}
			writing.Wait()
			began := time.Now()
			r.awaitContent(t.Context())
			if time.Since(began) != 0 {
				t.Error("awaitContent waited although the file has content")
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			r.awaitContent(t.Context())
			if took := time.Since(began); took != maximumBurst {
				t.Errorf("awaitContent waited for %v", took)
			}
			over, end := context.WithCancel(t.Context())
			end()
			r.awaitContent(over)
			if (&Reloader{}).awaitContent(t.Context()); time.Since(began) != maximumBurst {
				t.Error("awaitContent waited although ctx was done or there is no file")
			}
		})
	}
}
