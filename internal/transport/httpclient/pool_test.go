package httpclient

import (
	"net/http"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/transport/http1"
	"mcpgateway/internal/wire"
)

func TestChoiceOfPool(t *testing.T) {
	for _, test := range []struct {
		url, host string
		plain     bool
	}{
		{"http://127.0.0.1:8080/mcp", "", true},
		{"http://[::1]/mcp", "", true},
		{"HTTP://localhost/mcp", "other.test", true},
		{"https://localhost/mcp", "", false},
		{"http://[fe80::1%25lo]/mcp", "", false},
		{"http://b\u00fccher.test/mcp", "", false},
		{"http://localhost/mcp", "b\u00fccher.test", false},
		{"http://localhost/mcp", "a b", false},
	} {
		o := Options{URL: test.url}
		if test.host != "" {
			o.Headers = map[string]string{"Host": test.host}
		}
		target, err := newTarget(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, plain := target.pool.Transport.(*http1.RoundTripper); plain != test.plain {
			t.Errorf("%s, Host %q: plain %v", test.url, test.host, plain)
		}
	}
}

// The pool of net/http, which https and proxies need, keeps the same promises: a call that may have
// run is lost, a call without a connection is retried, and a cancelled call is aborted.
func TestCallsOverNetHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		aborted := make(chan bool, 1)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			switch m.Method() {
			case "break":
				abortConnection()
			case "block":
				blockUntilAborted(r)
				aborted <- true
			default:
				writeResult(w, m, `{}`)
			}
		}
		c := ready(t, s, func(o *Options) {
			pool := newPool()
			pool.Proxy, pool.DialContext = nil, s.dial
			o.RoundTripper = pool
		})
		c.wantLost(c.call("break"), true)
		s.mu.Lock()
		s.refusing = 2
		s.mu.Unlock()
		id := c.call("call")
		if m := c.read(); m.Kind() != wire.Response || m.ID() != id {
			t.Errorf("got %s", m.Raw())
		}
		id = c.call("block")
		synctest.Wait()
		c.cancel(id)
		<-aborted
	})
}
