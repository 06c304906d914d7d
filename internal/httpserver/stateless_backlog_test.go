package httpserver

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
)

// The backlog of a client is limited; a client that exceeds the limit is disconnected.
func TestStatelessBacklogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 10000 })
		s := h.openStream(statelessRequest("1", "hold", "")) // after keepAliveInterval
		r, handler := <-h.heldRequests, <-h.handlers
		n := 0
		var err error
		for ; err == nil && n < 1000; n++ {
			err = handler.Write(logMessage(n), "")
		}
		if !errors.Is(err, transport.ErrFull) || n < 50 || n > 110 {
			t.Errorf("after %d: %v", n, err)
		}
		for i := range n - 1 {
			s.want("", string(logMessage(i).Raw()))
		}
		synctest.Wait()
		h.write(handler, logMessage(n), "") // the backlog is within the limit again
		s.want("", string(logMessage(n).Raw()))

		h.write(handler, largeNotification(1, 100_000), "")
		synctest.Wait()
		r.Notify(progressNotification(1)) // the limit is exceeded: the peer closes the Conn
		if err := <-handler.closed; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("the exchange has ended: %v", err)
		}
		time.Sleep(closeDrainTimeout + time.Second)
		if _, err := s.next(); err == nil {
			t.Error("the whole event arrived")
		}
		synctest.Wait()
		if n := h.server.stateless.limit.counter.Total(); n != 0 {
			t.Errorf("%d stateless exchanges", n)
		}
	})
}

// A subscriber that does not read is disconnected long before it has a backlog of MessageLimit.
func TestSubscriptionBacklogLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 64 << 20 })
		s := h.openStream(statelessRequest("1", methodListen, ""))
		_, handler := <-h.heldRequests, <-h.handlers
		h.write(handler, largeNotification(1, 300_000), "")
		time.Sleep(stallTimeout)
		h.write(handler, logMessage(1), "") // the client may just be slow
		time.Sleep(time.Second)
		if err := handler.Write(logMessage(2), ""); !errors.Is(err, transport.ErrFull) {
			t.Errorf("Write succeeded: %v", err)
		}
		_ = handler.Writer.Close()
		time.Sleep(closeDrainTimeout + time.Second)
		s.disconnect()
		synctest.Wait()
		if n := h.server.stateless.limit.counter.Total(); n != 0 {
			t.Errorf("%d stateless exchanges", n)
		}
	})
}

// A subscriber that reads receives everything, regardless of bursts and pauses.
func TestSubscriptionReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit = 64 << 20 })
		s := h.openStream(statelessRequest("1", methodListen, ""))
		_, handler := <-h.heldRequests, <-h.handlers
		for round := range 3 {
			time.Sleep(10 * time.Second)
			for n := range 2000 {
				h.write(handler, largeNotification(round*2000+n, 300), "")
			}
			for n := range 2000 {
				s.want("", string(largeNotification(round*2000+n, 300).Raw()))
			}
		}
		s.disconnect()
	})
}

// A response that is not read is dropped in the end, as an event or as JSON.
func TestStatelessResponseDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		for _, first := range []bool{false, true} {
			c, err := h.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			body := statelessRequest("1", "hold", "").body
			fmt.Fprintf(c,
				"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Protocol-Version: %s\r\nContent-Length: %d\r\n\r\n%s", modernRevision, len(body), body)
			r := <-h.heldRequests
			if first {
				r.Notify(largeNotification(1, 100_000))
			}
			synctest.Wait()
			r.Reply([]byte(`"` + strings.Repeat("x", 1<<20) + `"`))
			time.Sleep(transferTimeout(2 << 20))
			synctest.Wait()
			if n, err := io.Copy(io.Discard, c); err != nil || n > 1<<20 {
				t.Errorf("%d more bytes could be read, %v", n, err)
			}
			c.Close()
			synctest.Wait()
			if n := h.server.stateless.limit.counter.Total(); n != 0 {
				t.Errorf("%d stateless exchanges", n)
			}
		}
	})
}
