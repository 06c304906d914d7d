package httpserver

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func TestBatches(t *testing.T) {
	h := newHouse(t, nil)
	for date, allowed := range map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": false, "2025-11-25": false} {
		key, _ := h.enter(date, nil)
		batch := func(elements ...string) knock {
			return knock{session: key, body: "[" + strings.Join(elements, ",") + "]"}
		}
		note := `{"jsonrpc":"2.0","method":"notifications/x"}`
		one, two := call("1", "echo", `{"a":1}`), call(`"1"`, "echo", `{"b":2}`)
		if !allowed {
			_, body := h.ask(batch(one, two))
			if !strings.Contains(body, `"code":-32600,"message":"Batch requests not supported"`) {
				t.Errorf("%s: %s", date, body)
			}
			h.wantError(batch(one), 400, "null", wire.CodeInvalidRequest)
			h.wantError(batch(note), 400, "null", wire.CodeInvalidRequest)
			continue
		}
		h.want(batch(one, note, two), 200, "["+result("1", `{"a":1}`)+","+result(`"1"`, `{"b":2}`)+"]")
		h.want(batch(one), 200, "["+result("1", `{"a":1}`)+"]")
		h.want(batch(note, result("9", "{}"), note), 202, "")
		for range 3 {
			<-h.told
		}
		res, body := h.ask(batch(one, "7"))
		if res.StatusCode != 200 || !strings.HasPrefix(body, "["+result("1", `{"a":1}`)+`,{"jsonrpc":"2.0","id":null,"error":{"code":-32600`) {
			t.Errorf("one is no message: %d %s", res.StatusCode, body)
		}
		h.wantError(batch("7", note), 400, "null", wire.CodeInvalidRequest)
		h.wantError(batch(), 400, "null", wire.CodeInvalidRequest)
		h.wantError(batch(one, two, one), 400, "null", wire.CodeInvalidRequest)
	}
}

// What is about any of a batch's requests goes to the batch's stream, and the
// answers come as one message.
func TestBatchAsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		key, _ := h.enter("2025-03-26", nil)
		s := h.stream(knock{session: key, body: "[" + call("1", "hold", "{}") + "," + call("2", "hold", "{}") + "," + call("3", "hold", "{}") + "]"})
		r1, r2, _ := <-h.held, <-h.held, <-h.held
		r2.Notify(progress(2))
		r1.Notify(progress(1))
		s.want("1-1", string(progress(2).Raw()))
		s.want("1-2", string(progress(1).Raw()))
		r2.Reply([]byte(`{"n":2}`))
		h.wantError(knock{session: key, body: call("2", "echo", "{}")}, 400, "2", wire.CodeInvalidRequest)
		h.want(knock{session: key, body: `[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}]`}, 202, "")
		r1.Reply([]byte(`{"n":1}`))
		s.want("1-3", "["+result("1", `{"n":1}`)+","+result("2", `{"n":2}`)+"]")
		s.end()
		h.want(knock{session: key, body: call("2", "echo", "{}")}, 200, result("2", "{}"))

		got := make(chan *events)
		go func() {
			got <- h.stream(knock{session: key, body: "[" + call("1", "hold", "{}") + "," + call("2", "hold", "{}") + "]"})
		}()
		<-h.held
		<-h.held
		for _, id := range []string{"1", "2"} {
			h.want(knock{session: key, body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`}, 202, "")
		}
		(<-got).end()
	})
}

// A cancellation in a batch is of what stands before it: each request of the batch ends once.
func TestCancellationsInABatch(t *testing.T) {
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	one, two := call("1", "hold", "{}"), call("2", "hold", "{}")
	for batch, answered := range map[string][]string{
		cancel + "," + one:                                 {"1"},
		cancel + "," + one + "," + two:                     {"1", "2"},
		two + "," + cancel + "," + one:                     {"2", "1"},
		cancel + "," + cancel + "," + one:                  {"1"},
		one + "," + cancel:                                 {},
		cancel + "," + one + "," + cancel:                  {},
		cancel + "," + one + "," + cancel + "," + two:      {"2"},
		two + "," + one + "," + cancel:                     {"2"},
		call("1", "ping", "{}") + "," + cancel + "," + two: {"1", "2"},
	} {
		for _, accept := range []string{"application/json, text/event-stream", "application/json", "text/event-stream, */*;q=0.5"} {
			t.Run(batch+" "+accept, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t, nil)
					key, _ := h.enter("2025-03-26", nil)
					go func() {
						for r := range h.held {
							time.Sleep(time.Second)
							r.Reply([]byte("{}"))
						}
					}()
					_, body := h.ask(knock{session: key, body: "[" + batch + "]", header: map[string]string{"Accept": accept}})
					var results []string
					for _, id := range answered {
						results = append(results, result(id, "{}"))
					}
					want := "[" + strings.Join(results, ",") + "]"
					if len(answered) == 0 && strings.Contains(body, "result") || len(answered) > 0 && !strings.Contains(body, want) {
						t.Errorf("answered with %q, want %s", body, want)
					}
					h.want(knock{session: key, body: call("1", "echo", "{}")}, 200, result("1", "{}")) // nothing of it is in flight
					time.Sleep(time.Minute)
					close(h.held)
				})
			})
		}
	}
}

// A cancellation that is delivered before a request with its id does not end that.
func TestACancellationThatIsDeliveredBeforeItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		key, _ := h.enter("2025-11-25", nil)
		s := h.door.find(key, 0, false)
		r, w := h.request(knock{session: key, body: call("1", "echo", "{}")}), httptest.NewRecorder()
		p, _ := h.door.read(w, r, true, h.door.holderOf(0, s))
		defer p.body.release()
		st, x, no := s.enter(w, p)
		if no != nil {
			t.Fatal(no.err)
		}
		h.want(knock{session: key, body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`}, 202, "")
		if err := s.deliver(t.Context(), p, st); err != nil {
			t.Fatal(err)
		}
		if s.answer(w, r, p, st, x, quick); w.Body.String() != result("1", "{}") {
			t.Errorf("answered with %q", w.Body)
		}
	})
}

// A request of the stateless era is refused in its place in a batch, by whom Serve hands it
// to; the others are served. In a session whose revision has no batches there is none.
func TestBatchWithARequestThatIsStateless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		modern := lone("2", "echo", "").body
		m, _ := wire.Parse([]byte(modern))
		no := string(wire.NewErrorResponse("2", protocol.RejectInBatch(m)).Raw())
		mixed := "[" + call("1", "echo", `{"a":1}`) + "," + modern + "," + call("3", "echo", `{"b":2}`) + "]"
		key, _ := h.enter("2025-03-26", nil)
		for _, header := range []map[string]string{nil, {"Mcp-Protocol-Version": "2025-03-26"}} {
			h.want(knock{session: key, header: header, body: mixed}, 200, "["+result("1", `{"a":1}`)+","+no+","+result("3", `{"b":2}`)+"]")
			h.want(knock{session: key, header: header, body: "[" + modern + "]"}, 200, "["+no+"]")
		}
		held := "[" + modern + "," + call("1", "hold", "{}") + "]"
		s := h.stream(knock{session: key, body: held})
		(<-h.held).Reply([]byte("{}"))
		s.want("1-1", "["+no+","+result("1", "{}")+"]")
		s.end()
		h.want(knock{session: key, body: call("2", "echo", "{}")}, 200, result("2", "{}")) // nothing is left of it

		h.wantError(knock{session: key, body: mixed}.named("2026-07-28"), 400, "null", wire.CodeInvalidRequest)
		h.wantError(knock{body: mixed}.named("2026-07-28"), 400, "null", wire.CodeInvalidRequest)
		key, _ = h.enter("2025-11-25", nil)
		h.wantError(knock{session: key, body: mixed}, 400, "null", wire.CodeInvalidRequest)
	})
}

// A second request with the id of one that is in flight is refused, and the first
// is answered as if nothing had been.
func TestID_07_DuplicateIDsDoNotDisturbTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		key, _ := h.enter("2025-11-25", nil)
		for _, id := range []string{"1", `"1"`, "null"} {
			first := h.stream(knock{session: key, body: call(id, "hold", `{}`)})
			r := <-h.held
			h.wantError(knock{session: key, body: call(id, "echo", `{}`)}, 400, id, wire.CodeInvalidRequest)
			h.wantError(knock{session: key, body: call(id, "ping", `{}`)}, 400, id, wire.CodeInvalidRequest)
			if first, err := first.next(); err != nil || first.data != "" {
				t.Errorf("%+v %v", first, err)
			}
			r.Reply([]byte(`{"n":1}`))
			if answer, err := first.next(); err != nil || answer.data != result(id, `{"n":1}`) {
				t.Errorf("%+v %v", answer, err)
			}
			first.end()
			h.want(knock{session: key, body: call(id, "echo", `{}`)}, 200, result(id, "{}"))
		}
		other, _ := h.enter("2025-11-25", nil)
		a := h.stream(knock{session: key, body: call("1", "hold", `{}`)})
		b := h.stream(knock{session: other, body: call("1", "hold", `{}`)}) // another client's is another
		(<-h.held).Reply([]byte(`"a"`))
		(<-h.held).Reply([]byte(`"b"`))
		a.want("4-0", "")
		a.want("4-1", result("1", `"a"`))
		b.want("1-0", "")
		b.want("1-1", result("1", `"b"`))
		a.end()
		b.end()
	})
}
