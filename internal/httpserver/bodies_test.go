package httpserver

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// bulky is a call with n bytes of params.
func bulky(id, method string, n int) string {
	return call(id, method, `{"x":"`+strings.Repeat("x", n)+`"}`)
}

// holds tells how many bytes of bodies are held.
func (h *house) holds() int64 {
	synctest.Wait()
	h.door.bodies.mu.Lock()
	defer h.door.bodies.mu.Unlock()
	return h.door.bodies.total
}

// What was posted counts until it is answered, even if its client has hung up, or the
// answer comes on another stream.
func TestBodiesAreHeldUntilTheyAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		want := func(low int64, what string) {
			t.Helper()
			if n := h.holds(); n < low || n > low+1000 {
				t.Errorf("%s: %d bytes are held, want %d", what, n, low)
			}
		}
		key, g := h.enter("2025-11-25", nil)
		s := h.stream(knock{session: key, body: bulky("1", "hold", 100_000)})
		r := <-h.held
		want(100_000, "in flight")
		s.cut()
		want(100_000, "its client has hung up")
		r.Reply([]byte("{}"))
		want(0, "answered")

		s = h.stream(knock{session: key, body: bulky("2", "hold", 100_000)})
		<-h.held
		h.want(knock{session: key, body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`}, 202, "")
		s.cut()
		want(0, "taken back")

		s = h.stream(knock{session: key, body: bulky("3", "hold", 100_000)})
		<-h.held
		g.Writer.Close()
		s.cut()
		want(0, "its session is over")

		h.want(knock{session: "nobody", body: bulky("4", "hold", 100_000)}, 404, "*")
		h.want(knock{body: "[[]]"}, 400, "*")
		want(0, "refused")
	})
}

func TestBodiesAreHeldUntilTheyAreAnswered_Batch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		key, _ := h.enter("2025-03-26", nil)
		s := h.stream(knock{session: key, body: "[" + bulky("1", "hold", 100_000) + "," + bulky("2", "hold", 10) + "]"})
		a, b := <-h.held, <-h.held
		a.Reply([]byte("{}"))
		if n := h.holds(); n < 100_000 {
			t.Errorf("%d bytes are held", n)
		}
		b.Reply([]byte("{}"))
		s.cut()
		if n := h.holds(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
}

func TestBodiesAreHeldUntilTheyAreAnswered_SSE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		s := h.stream(knock{verb: "GET", path: "/sse"})
		ev, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		post := func(body string) {
			t.Helper()
			h.want(knock{path: ev.data, body: body}, 202, "")
		}
		post(initialize("2025-03-26"))
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		post(bulky("1", "hold", 100_000))
		post(bulky("2", "hold", 100_000))
		post("[" + bulky("3", "hold", 100_000) + "]")
		one, _, three := <-h.held, <-h.held, <-h.held
		if n := h.holds(); n < 300_000 {
			t.Errorf("%d bytes are held", n)
		}
		one.Reply([]byte("{}"))
		s.want("", result("1", "{}"))
		three.Reply([]byte("{}"))
		s.want("", "["+result("3", "{}")+"]")
		post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		if n := h.holds(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
		s.cut()
	})
}

// A request without a session counts until it is over, and for its principal.
func TestBodiesAreHeldUntilTheyAreAnswered_Stateless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) {
			o.MessageLimit, o.BacklogLimit, o.Tokens = 1<<20, 2<<20, []string{"a", "b"}
		})
		by := func(token, id string, n int) knock {
			return lone(id, "hold", `"x":"`+strings.Repeat("x", n)+`"`).with("Authorization", "Bearer "+token)
		}
		over := make(chan bool)
		go func() {
			h.want(by("a", "1", 1<<20-1000), 200, result("1", "{}"))
			close(over)
		}()
		r := <-h.held
		if n := h.holds(); n < 1<<20-1000 {
			t.Errorf("%d bytes are held", n)
		}
		if res := h.want(by("a", "2", 100_000), 503, "*"); res.Header.Get("Retry-After") != "1" {
			t.Errorf("headers: %v", res.Header)
		}
		go func() { (<-h.held).Reply([]byte("{}")) }()
		h.want(by("b", "3", 100_000), 200, result("3", "{}"))
		r.Reply([]byte("{}"))
		<-over
		if n := h.holds(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
}

// A place is free only just after its client has the answer. That client is not refused
// for it.
func TestAPlaceIsFreeAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) {
			o.MaxSessions = 1
			o.ServeStateless = func(_ context.Context, _ SessionInfo, c transport.Conn) {
				m, _, _ := c.Read()
				_ = c.Write(wire.NewResult(m.ID(), []byte("{}")), "")
				_, _, _ = c.Read()
				time.Sleep(justAfter / 2)
			}
		})
		for range 100 {
			h.want(lone("1", "echo", ""), 200, result("1", "{}"))
		}
	})
}

// Room is made for what has come, not for what is announced: that does not count, and may
// never come.
func TestAnAnnouncedBodyTakesNoRoom(t *testing.T) {
	for _, announced := range []int64{100, 1 << 20, 1 << 30} {
		from := &looking{}
		_, no := readBody(httptest.NewRecorder(), from, announced, 1<<30)
		if no == nil || from.room > 2*smallBody {
			t.Errorf("%d bytes announced: %v, room for %d", announced, no, from.room)
		}
	}
}

// looking is a body that does not come. It notes how much room was made for it.
type looking struct{ room int }

func (l *looking) Read(b []byte) (int, error) {
	l.room = len(b)
	return 0, io.ErrUnexpectedEOF
}

// The first body of all, which was refused before anything of it was read, was let go of
// with a panic: nothing had ever been counted.
func TestTheFirstBodyIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		h := newHouse(t, func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		h.want(knock{body: strings.Repeat(" ", 2<<20)}, 413, "*")
		h.stop()
		if strings.Contains(log.String(), "panic") {
			t.Error(log.String())
		}
	})
}

// Whoever has one of several tokens is one holder, even if the token was alone from the start:
// many sessions are not many shares.
func TestWhoWasAloneHoldsOneShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(o *Options) { o.Tokens, o.MessageLimit, o.BacklogLimit = []string{"alpha"}, 100_000, 300_000 })
		by := func(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }
		hold := func(id, token, key string) knock {
			return knock{session: key, body: bulky(id, "hold", 80_000), header: by(token)}
		}
		one, _ := h.enter("2025-11-25", by("alpha"))
		two, _ := h.enter("2025-11-25", by("alpha"))
		h.door.UpdateAccess([]string{"alpha", "beta"}, nil, nil)
		beta, _ := h.enter("2025-11-25", by("beta"))
		s := h.stream(hold("1", "alpha", one))
		if res, _ := h.ask(hold("2", "alpha", two)); res.StatusCode != 503 {
			t.Errorf("a second session gets its own share: %s", res.Status)
		}
		h.stream(hold("3", "beta", beta)).cut()
		s.cut()
	})
}
