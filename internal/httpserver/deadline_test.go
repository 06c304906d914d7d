package httpserver

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/wire"
)

// A body that is not read must arrive in time, because net/http waits for the body before it sends
// the response.
func TestUnreadBodyDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.Loopback = true })
		for name, head := range map[string]string{
			"wrong type": "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n",
			"wrong host": "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n",
			"wrong verb": "PUT /mcp HTTP/1.1\r\nHost: localhost\r\n",
			"health":     "POST /healthz HTTP/1.1\r\nHost: localhost\r\n",
			"nowhere":    "POST /x HTTP/1.1\r\nHost: localhost\r\n",
			"in time":    "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n",
		} {
			for _, length := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
				c, err := h.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				fmt.Fprintf(c, "%s%s\r\n\r\n", head, length)
				_, _ = io.Copy(io.Discard, c)
				if took := time.Since(began); took > transferTimeout(1000)+time.Second &&
					length[0] == 'C' || took > transferTimeout(int64(h.server.opts.MessageLimit))+
					time.Second {
					t.Errorf("%s, %s: the connection ended after %v", name, length, took)
				}
				c.Close()
			}
		}
	})
}

// A response that the client does not read is not kept forever, whether its session is closed or
// not.
func TestResponseWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-11-25", nil)
		c, err := h.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		body := requestJSON("1", "echo", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
		fmt.Fprintf(c,
			"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
				"Mcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
		synctest.Wait()
		h.want(testRequest{session: key, method: "DELETE"}, 204, "")
		time.Sleep(transferTimeout(2 << 20))
		synctest.Wait()
		if n, err := io.Copy(io.Discard, c); err != nil || n > 1<<20 {
			t.Errorf("%d more bytes could be read, %v", n, err)
		}
	})
}

// A server request about a call whose POST has broken goes to a stream with a reader.
func TestServerRequestOfAbandonedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-03-26", nil)
		alone := h.openStream(testRequest{method: "GET", session: key})
		res := h.send(post(key, requestJSON("1", "hold", "{}")))
		r := <-h.heldRequests
		res.Body.Close() // before the first event, so that the client cannot resume
		synctest.Wait()
		question := wire.NewRequest("9", "elicitation/create", []byte("{}"))
		if err := handler.Writer.Write(question, r.RemoteID()); err != nil {
			t.Fatal(err)
		}
		alone.want("0-1", string(question.Raw()))
		alone.disconnect()
		r.Reply([]byte("{}"))
	})
}

// The bytes that are arriving are limited for all clients together, and each new client gets a part
// of the limit.
func TestBodyQuotaOfAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.MessageLimit, o.BacklogLimit = 1<<20, 4<<20 })
		var held []io.WriteCloser
		var key string
		for range 3 {
			key, _ = h.initialize("2025-11-25", nil)
			r, w := io.Pipe()
			req := h.newRequest(testRequest{session: key})
			req.Body, req.ContentLength = r, -1
			go func() {
				if res, err := h.client.Do(req); err == nil {
					res.Body.Close()
				}
			}()
			_, _ = w.Write(make([]byte, 1<<20-1024))
			held = append(held, w)
		}
		synctest.Wait()
		newClient, _ := h.initialize("2025-11-25", nil)
		full := requestJSON("1", "echo", `"`+strings.Repeat("x", 1<<20-100)+`"`)
		h.want(post(newClient, full), 503, "*")
		one := requestJSON("1", "hold", `"`+strings.Repeat("x", 10<<10)+`"`)
		s := h.openStream(post(newClient, one))
		// A small body is accepted, because it may be a cancellation.
		h.want(post(key, requestJSON("2", "echo", `{}`)), 200, resultJSON("2", "{}"))
		if res := h.want(post(key, one), 503, "*"); res.Header.Get("Retry-After") != "1" {
			t.Errorf("headers: %v", res.Header)
		}
		(<-h.heldRequests).Reply([]byte("{}"))
		s.disconnect()
		for _, w := range held {
			w.Close()
		}
		synctest.Wait()
		if n := h.heldBytes(); n != 0 {
			t.Errorf("%d bytes are still in use", n)
		}
		h.want(post(key, requestJSON("1", "echo", `{}`)), 200, resultJSON("1", "{}"))
	})
}

// A pending server request is moved when the client cancels the call.
func TestServerRequestOutlivesCancelledCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(post(key, requestJSON("1", "hold", "{}")))
		s.want("1-0", "")
		r := <-h.heldRequests
		s.disconnect()
		synctest.Wait()
		question := wire.NewRequest("9", "elicitation/create", []byte("{}"))
		if err := handler.Writer.Write(question, r.RemoteID()); err != nil {
			t.Fatal(err)
		}
		h.want(post(key, cancelJSON("1")), 202, "")
		alone := h.openStream(testRequest{method: "GET", session: key})
		alone.want("0-0", "")
		alone.want("0-1", string(question.Raw()))
		alone.disconnect()
	})
}
