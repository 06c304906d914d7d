package door

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A body that nobody wants to read has to come in time all the same: net/http
// waits for it before it answers.
func TestABodyThatNobodyReadsHasToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.Loopback = true })
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
				if took := time.Since(began); took > timeFor(1000)+time.Second && length[0] == 'C' || took > timeFor(int64(h.door.o.Limit))+time.Second {
					t.Errorf("%s, %s: the connection ended after %v", name, length, took)
				}
				c.Close()
			}
		}
	})
}

// An answer that a client does not take is not kept for ever, be its session over
// or not.
func TestAnAnswerThatIsNotTakenIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		key, _ := h.enter("2025-11-25", nil)
		c, err := h.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		body := call("1", "echo", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`)
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
		synctest.Wait()
		h.want(visit{session: key, verb: "DELETE"}, 204, "")
		time.Sleep(timeFor(2 << 20))
		synctest.Wait()
		if n, err := io.Copy(io.Discard, c); err != nil || n > 1<<20 {
			t.Errorf("%d bytes were still to be had, %v", n, err)
		}
	})
}
