package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

// After many concurrent POSTs a few goroutines remain and send the next messages. They end if there
// is no message for some time.
func TestPostingGoroutinesAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, resultOf(m, `{}`))
		}
		c := ready(t, s, nil)
		conn := c.Conn.(*streamable)
		goroutines := func() (running, spare int) {
			conn.goroutines.mu.Lock()
			defer conn.goroutines.mu.Unlock()
			return conn.goroutines.running, conn.goroutines.idle
		}
		const calls = 3 * maxIdle // more than the remaining goroutines
		synctest.Wait()
		first, waiting := goroutines()
		for round := range 3 {
			for i := range calls {
				if err := c.Write(wire.NewRequest(wire.ID(fmt.Sprint(calls*round+i+1000)), "call",
					nil), ""); err != nil {
					t.Fatal(err)
				}
			}
			for range calls {
				if m := c.read(); m.Kind() != wire.Response {
					t.Fatalf("read %s", m.Raw())
				}
			}
			synctest.Wait()
			if running, spare := goroutines(); spare != maxIdle || running > first+maxIdle {
				t.Errorf("round %d: %d goroutines, %d of them idle; want %d idle besides %d", round,
					running, spare, maxIdle, first)
			}
		}
		time.Sleep(2 * idleTime)
		synctest.Wait()
		if running, spare := goroutines(); spare != 0 || running != first-waiting {
			t.Errorf("without calls there are %d goroutines, %d of them idle; want %d", running, spare,
				first-waiting)
		}
	})
}

// A connection without goroutines ends while Read waits: Read returns the reason.
func TestReadReturnsReasonOfEnd(t *testing.T) {
	reason := errors.New("the reason")
	for range 20_000 {
		c := newHTTPConn(Options{URL: "http://127.0.0.1"})
		read := make(chan error)
		go func() {
			_, _, err := c.Read()
			read <- err
		}()
		runtime.Gosched()
		c.end(reason)
		if err := <-read; err != reason {
			t.Fatalf("Read returned %v", err)
		}
	}
}
