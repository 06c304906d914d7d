package httpclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// quotaQuarter is the length of a response in bytes. A few such responses exhaust the quota.
const quotaQuarter = 256 << 10

// wantQuotaExceeded reads the CallLostError of a request that exceeds the quota.
func (c *client) wantQuotaExceeded() {
	c.Helper()
	_, _, err := c.Read()
	if lost, is := errors.AsType[*transport.CallLostError](err); !is ||
		!strings.Contains(lost.Error(),
			"the answer cannot be read: incomplete messages from this backend may have at most") {
		c.Errorf("got %v", err)
	}
}

// Stalled bodies exhaust the quota: a further large response fails, a short one does not, and
// when the stalled bodies have ended a large response succeeds again.
func TestReceiveQuotaOfBodies_F_SEC_9(t *testing.T) {
	for _, announced := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t)
			in := transport.NewReceiveQuota(1<<20, transport.NewReceiveQuota(1<<30, nil))
			stalled := make(chan bool)
			s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
				text := resultOf(m, `{"a":"`+strings.Repeat("x", quotaQuarter)+`"}`)
				if announced && m.Method() == "tools/call" {
					w.Header().Set("Content-Length", fmt.Sprint(len(text)))
				}
				switch m.Method() {
				case "prompts/list":
					writeResult(w, m, "{}")
				case "resources/read":
					io.WriteString(w, text)
				default:
					io.WriteString(w, text[:len(text)-1])
					w.(http.Flusher).Flush()
					select {
					case <-stalled:
						io.WriteString(w, text[len(text)-1:])
					case <-r.Context().Done():
					}
				}
			}
			c := ready(t, s, func(o *Options) { o.Quota = in })
			failed := 0
			for range 10 {
				before := in.InUse()
				c.call("tools/call")
				synctest.Wait()
				if in.InUse() > before {
					continue // the body stalls
				}
				c.wantQuotaExceeded()
				failed++
			}
			if failed < 6 || failed > 8 {
				t.Fatalf("%d of 10 failed, %d bytes are held", failed, in.InUse())
			}
			id := c.call("prompts/list")
			c.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id))
			for range 10 - failed {
				stalled <- true
				if m := c.read(); m.Kind() != wire.Response {
					t.Errorf("got %s", m.Raw())
				}
			}
			synctest.Wait()
			if n := in.InUse(); n != 0 {
				t.Errorf("%d bytes are held", n)
			}
			id = c.call("resources/read")
			if m := c.read(); m.ID() != id || m.Kind() != wire.Response {
				t.Errorf("got %s", m.Raw())
			}
		})
	}
}

// An event counts until its blank line, whether it has one line of data or many.
func TestReceiveQuotaOfStreams_F_SEC_9(t *testing.T) {
	for name, data := range map[string]func(string) string{
		"a line without its end": func(text string) string { return "data: " + text },
		"a line":                 func(text string) string { return "data: " + text + "\n" },
		"many lines": func(text string) string {
			return "data: " + strings.ReplaceAll(text, `", "`, "\",\ndata: \"") + "\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				in := transport.NewReceiveQuota(1<<20, nil)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					if m.Method() != "tools/call" {
						writeStream(w, messageEvent(resultOf(m, "{}")))
						return
					}
					text := resultOf(m,
						`["`+strings.Repeat(strings.Repeat("x", 1<<10)+`","`,
							quotaQuarter>>10)+`"]`)
					writeStream(w, data(strings.ReplaceAll(text, `x","`, `x", "`)))
					blockUntilAborted(r)
				}
				c := ready(t, s, func(o *Options) { o.Quota = in })
				var open []wire.ID
				for range 10 {
					open = append(open, c.call("tools/call"))
					synctest.Wait()
				}
				if n := in.InUse(); n < quotaQuarter || n > 1<<20 {
					t.Errorf("%d bytes are held", n)
				}
				id := c.call("ping")
				for { // a dropped message is reported when its event ends, or never
					m, _, err := c.Read()
					if err == nil && m.ID() == id {
						break
					} else if err == nil {
						t.Fatalf("got %s", m.Raw())
					}
				}
				for _, id := range open {
					c.cancel(id)
				}
				synctest.Wait()
				if n := in.InUse(); n != 0 {
					t.Errorf("%d bytes are held", n)
				}
			})
		})
	}
}

// A complete event that exceeds the quota makes its request fail.
func TestReceiveQuotaOfAnEvent_F_SEC_9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		in := transport.NewReceiveQuota(64<<10, transport.NewReceiveQuota(1<<30, nil))
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			writeStream(w,
				messageEvent(resultOf(m, `{"a":"`+strings.Repeat("x", quotaQuarter)+`"}`)))
			blockUntilAborted(r)
		}
		c := ready(t, s, func(o *Options) { o.Quota = in })
		c.call("tools/call")
		c.wantQuotaExceeded()
		c.Close()
		if n := in.InUse(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
}
