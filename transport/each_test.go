package transport

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"mcpgateway/wire"
)

// All that Read would return is handed over once, by one at a time, and the end of it when nothing is under way any more.
func TestEach(t *testing.T) {
	ends := map[string]struct {
		end  func(c Conn)
		want error
	}{
		"closed":    {func(c Conn) { c.Close() }, ErrClosed},
		"forgotten": {func(c Conn) { _ = c.Write(wire.NewRequest("2", "forget", nil), "") }, ErrSessionLost},
	}
	for name, how := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
					switch m.Method() {
					case "hang":
						hang(r)
					case "forget":
						http.Error(w, "session not found", http.StatusNotFound)
					default:
						stream(w, sse(`{"jsonrpc":"2.0","method":"news"}`), sse(result(m, `{}`)))
					}
				}
				c := ready(t, s, nil).Conn
				var within atomic.Int32
				var news, answers, lost int // of whoever is within
				var last error
				take := func(m wire.Message, about wire.ID, err error) (more bool) {
					if within.Add(1) != 1 {
						t.Error("two at a time")
					}
					defer within.Add(-1)
					switch {
					case errors.As(err, new(*Lost)):
						lost++
					case err != nil:
						last = err
						return false
					case m.Kind() == wire.Response:
						answers++
						_ = c.Write(wire.NewNotification("seen", nil), "") // it may write
					case about != "":
						news++
					}
					return true
				}
				over := make(chan struct{})
				go func() {
					defer close(over)
					Each(c, take)
				}()
				const calls = 3 * maxSpare // more than there are goroutines that stay
				for round := range 2 {
					for i := range calls {
						if err := c.Write(wire.NewRequest(wire.ID(fmt.Sprint(calls*round+i+1000)), "call", nil), ""); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait()
				}
				_ = c.Write(wire.NewRequest("1", "hang", nil), "")
				synctest.Wait()
				if n := s.count("seen"); news != 2*calls || answers != 2*calls || n != 2*calls || lost != 0 {
					t.Errorf("%d news and %d answers, of which %d were seen, and %d lost; want %d each, and none", news, answers, n, lost, 2*calls)
				}
				how.end(c)
				<-over
				if !errors.Is(last, how.want) {
					t.Errorf("the end is %v, want %v", last, how.want)
				}
			})
		})
	}
}
