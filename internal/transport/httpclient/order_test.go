package httpclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A strict server rejects all messages before it has accepted initialized.
func TestNOTIF_19_InitializedIsDeliveredFirst(t *testing.T) {
	for i := range 100 {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t)
			initialized := false
			s.note = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
				if m.Method() == "notifications/initialized" {
					time.Sleep(time.Duration(i) * 100 * time.Millisecond)
					initialized = true
				}
				w.WriteHeader(202)
			}
			s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
				if !initialized {
					rpcError(w, 200, string(m.ID()), -32600, "not initialized")
					return
				}
				writeResult(w, m, "{}")
			}
			c := ready(t, s, nil)
			for range 3 {
				c.call("tools/list")
			}
			for range 3 {
				if m := c.read(); m.Part(wire.PartResult) == nil {
					t.Errorf("start %d: %s", i, m.Raw())
				}
			}
		})
	}
}

func TestHTTPNotificationsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		wait := 9 * time.Second
		s.note = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			wait -= 2 * time.Second // the first POST takes the longest
			time.Sleep(wait)
			w.WriteHeader(202)
		}
		c := ready(t, s, nil)
		c.write(`{"jsonrpc":"2.0","method":"a"}`)
		c.write(`{"jsonrpc":"2.0","method":"b"}`)
		c.call("tools/list")
		c.read()
		if got := s.order(); got != "initialize notifications/initialized a b tools/list" {
			t.Errorf("arrived: %s", got)
		}
	})
}

// A notification that hangs delays later messages once, by half a minute.
func TestHTTPNotificationThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.note = func(_ http.ResponseWriter, r *http.Request, _ wire.Message) {
			blockUntilAborted(
				r)
		}
		began := time.Now()
		c := ready(t, s, nil)
		for range 5 {
			c.write(`{"jsonrpc":"2.0","method":"a"}`)
		}
		c.call("tools/list")
		c.read()
		if d := time.Since(began); d != notificationTimeout {
			t.Errorf("took %v", d)
		}
		time.Sleep(10 * time.Minute)
		if n := s.count("a"); n != 5 {
			t.Errorf("%d of 5 notifications were sent", n)
		}
		if s.count("GET") != 0 {
			t.Error("GET though initialized was not accepted")
		}
	})
}

// The cancellation is sent while its request hangs, and ends the request.
func TestHTTPCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		aborted := make(chan time.Time, 1)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "tools/call" {
				writeStream(w, ": hello\n\n")
				blockUntilAborted(r)
				aborted <- time.Now()
				return
			}
			writeResult(w, m, "{}")
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		synctest.Wait()
		s.note = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
			time.Sleep(time.Second)
			w.WriteHeader(202)
		}
		began := time.Now()
		c.cancel(id)
		if d := (<-aborted).Sub(began); d != time.Second {
			t.Errorf("aborted after %v, want it after the notification was taken", d)
		}
		next := c.call("ping")
		if m := c.read(); m.ID() != next {
			t.Errorf("got %s", m.Raw())
		}
	})
}

// The cancellation overtakes waiting messages and delays none.
func TestHTTPCancelIsOutOfBand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		release := make(chan bool)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			if m.Method() == "tools/call" {
				blockUntilAborted(r)
			}
			writeResult(w, m, "{}")
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		synctest.Wait()
		s.note = func(_ http.ResponseWriter, r *http.Request, _ wire.Message) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		c.write(`{"jsonrpc":"2.0","method":"a"}`)
		c.cancel(id)
		synctest.Wait()
		if got := s.order(); got != "initialize notifications/initialized tools/call a notifications/cancelled" &&
			got != "initialize notifications/initialized tools/call notifications/cancelled a" {
			t.Errorf("arrived: %s", got)
		}
		waiting := c.call("tools/list") // after the notification a, which hangs
		synctest.Wait()
		if s.count("tools/list") != 0 {
			t.Error("tools/list was not delayed")
		}
		c.cancel(waiting) // was not sent, so its cancellation is not sent either
		close(release)
		next := c.call("ping")
		if m := c.read(); m.ID() != next {
			t.Errorf("got %s", m.Raw())
		}
		if s.count("tools/list") != 0 || s.count("notifications/cancelled") != 1 {
			t.Errorf("arrived: %s", s.order())
		}
	})
}

// A response that arrives while its request is being cancelled is dropped, and a late
// cancellation is still sent.
func TestHTTPCancelAndResponseCross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		release := make(chan bool)
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			if m.Method() == "tools/call" {
				<-release
			}
			writeResult(w, m, "{}")
		}
		s.note = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			if m.Method() == "notifications/cancelled" && m.RequestID() == "101" {
				release <- true
				time.Sleep(time.Second)
			}
			w.WriteHeader(202)
		}
		c := ready(t, s, nil)
		id := c.call("tools/call")
		synctest.Wait()
		c.cancel(id)
		time.Sleep(2 * time.Second)
		next := c.call("ping")
		if m := c.read(); m.ID() != next {
			t.Errorf("got %s", m.Raw())
		}
		c.cancel(next)
		synctest.Wait()
		if n := s.count("notifications/cancelled"); n != 2 {
			t.Errorf("%d cancellations arrived, want 2", n)
		}
	})
}

// The response to a request of the server is a POST like any other.
func TestHTTPRespondsToTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		answered := make(chan string, 1)
		s.note = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			if m.Kind() == wire.Response {
				answered <- string(m.Raw())
			}
			w.WriteHeader(202)
		}
		s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
			writeStream(w, messageEvent(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`))
			writeStream(w, messageEvent(resultOf(m, fmt.Sprintf(`{"asked":%s}`, <-answered))))
		}
		c := ready(t, s, nil)
		c.call("tools/call")
		c.want(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		c.write(`{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`)
		c.want(
			`{"jsonrpc":"2.0","id":101,"result":{"asked":{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}}}`)
	})
}

func TestHTTPRejectsABatch(t *testing.T) {
	c := DialStreamable(Options{URL: "http://stub.test/mcp"})
	defer c.Close()
	err := c.Write(wire.NewBatch([]wire.Message{wire.NewRequest("1", "ping", nil)}), "")
	if err == nil || errors.Is(err, transport.ErrFull) {
		t.Errorf("got %v", err)
	}
}

// A server sends its requests on the standalone stream, or drops them if there is none, so the
// stream must be open before the first call. If the server delays its headers, the Conn does not
// wait.
func TestHTTPCallsWaitForTheStandaloneStream(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  time.Duration // time until the call arrives
	}{
		"open": {300 * time.Millisecond, 300 * time.Millisecond},
		"slow": {time.Minute, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				began := time.Now()
				s.get = func(w http.ResponseWriter, r *http.Request) {
					select {
					case <-time.After(c.takes):
					case <-r.Context().Done():
						return
					}
					w.Header().Set("Content-Type", "text/event-stream")
					w.WriteHeader(200)
					w.(http.Flusher).Flush()
					blockUntilAborted(r)
				}
				var arrived time.Duration
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					arrived = time.Since(began)
					writeResult(w, m, "{}")
				}
				conn := ready(t, s, nil)
				conn.call("tools/call")
				conn.read()
				if arrived != c.want {
					t.Errorf("the call arrived after %v, want %v", arrived, c.want)
				}
			})
		})
	}
}

// A slowTransport sends a tools/call slowly, and records when a cancellation arrives.
type slowTransport struct {
	http.RoundTripper
	cancelled chan time.Time
}

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(text))
		switch {
		case bytes.Contains(text, []byte("tools/call")):
			time.Sleep(300 * time.Millisecond)
		case bytes.Contains(text, []byte("notifications/cancelled")):
			s.cancelled <- time.Now()
		}
	}
	return s.RoundTripper.RoundTrip(r)
}

// A cancellation is not sent before its request, because the server would ignore it.
func TestHTTPCancelDoesNotOvertakeItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			writeStream(w, ": hello\n\n")
			blockUntilAborted(r)
		}
		cancelled := make(chan time.Time, 1)
		c := ready(t, s,
			func(o *Options) { o.RoundTripper = slowTransport{o.RoundTripper, cancelled} })
		synctest.Wait()
		began := time.Now()
		id := c.call("tools/call")
		synctest.Wait() // the request is being sent
		c.cancel(id)
		if took := (<-cancelled).Sub(began); took != 300*time.Millisecond {
			t.Errorf("the cancellation was sent after %v", took)
		}
		time.Sleep(time.Minute)
	})
}
