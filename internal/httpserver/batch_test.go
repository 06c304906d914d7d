package httpserver

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func TestBatches(t *testing.T) {
	h := newHarness(t, nil)
	for date, allowed := range map[string]bool{"2024-11-05": true, "2025-03-26": true,
		"2025-06-18": false, "2025-11-25": false} {
		key, _ := h.initialize(date, nil)
		batch := func(elements ...string) testRequest {
			return post(key, "["+strings.Join(elements, ",")+"]")
		}
		note := `{"jsonrpc":"2.0","method":"notifications/x"}`
		one, two := requestJSON("1", "echo", `{"a":1}`), requestJSON(`"1"`, "echo", `{"b":2}`)
		if !allowed {
			_, body := h.do(batch(one, two))
			if !strings.Contains(body, `"code":-32600,"message":"Batch requests not supported"`) {
				t.Errorf("%s: %s", date, body)
			}
			h.wantError(batch(one), 400, "null", wire.CodeInvalidRequest)
			h.wantError(batch(note), 400, "null", wire.CodeInvalidRequest)
			continue
		}
		h.want(batch(one, note, two), 200,
			"["+resultJSON("1", `{"a":1}`)+","+resultJSON(`"1"`, `{"b":2}`)+"]")
		h.want(batch(one), 200, "["+resultJSON("1", `{"a":1}`)+"]")
		h.want(batch(note, resultJSON("9", "{}"), note), 202, "")
		for range 3 {
			<-h.notifications
		}
		res, body := h.do(batch(one, "7"))
		if res.StatusCode != 200 ||
			!strings.HasPrefix(body, "["+resultJSON("1", `{"a":1}`)+
				`,{"jsonrpc":"2.0","id":null,"error":{"code":-32600`) {
			t.Errorf("batch with an invalid message: %d %s", res.StatusCode, body)
		}
		h.wantError(batch("7", note), 400, "null", wire.CodeInvalidRequest)
		h.wantError(batch(), 400, "null", wire.CodeInvalidRequest)
		h.wantError(batch(one, two, one), 400, "null", wire.CodeInvalidRequest)
	}
}

// Messages that are related to a request of a batch are sent on the stream of the batch, and the
// responses are sent as one message.
func TestBatchAsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-03-26", nil)
		s := h.openStream(post(key,
			"["+requestJSON("1", "hold", "{}")+","+requestJSON("2", "hold", "{}")+","+
				requestJSON("3", "hold", "{}")+"]"))
		r1, r2, _ := <-h.heldRequests, <-h.heldRequests, <-h.heldRequests
		r2.Notify(progressNotification(2))
		r1.Notify(progressNotification(1))
		s.want("1-1", string(progressNotification(2).Raw()))
		s.want("1-2", string(progressNotification(1).Raw()))
		r2.Reply([]byte(`{"n":2}`))
		h.wantError(post(key, requestJSON("2", "echo", "{}")), 400, "2", wire.CodeInvalidRequest)
		h.want(post(key,
			"["+cancelJSON("3")+"]"), 202, "")
		r1.Reply([]byte(`{"n":1}`))
		s.want("1-3", "["+resultJSON("1", `{"n":1}`)+","+resultJSON("2", `{"n":2}`)+"]")
		s.wantEnd()
		h.want(post(key, requestJSON("2", "echo", "{}")), 200, resultJSON("2", "{}"))

		got := make(chan *eventReader)
		go func() {
			got <- h.openStream(post(key,
				"["+requestJSON("1", "hold", "{}")+","+requestJSON("2", "hold", "{}")+"]"))
		}()
		<-h.heldRequests
		<-h.heldRequests
		for _, id := range []string{"1", "2"} {
			h.want(post(key, cancelJSON(id)), 202, "")
		}
		(<-got).wantEnd()
	})
}

// A cancellation in a batch refers to the preceding requests. Each request of the batch gets at
// most one result.
func TestCancellationsInBatch(t *testing.T) {
	cancel := cancelJSON("1")
	one, two := requestJSON("1", "hold", "{}"), requestJSON("2", "hold", "{}")
	for batch, answered := range map[string][]string{
		cancel + "," + one:                                        {"1"},
		cancel + "," + one + "," + two:                            {"1", "2"},
		two + "," + cancel + "," + one:                            {"2", "1"},
		cancel + "," + cancel + "," + one:                         {"1"},
		one + "," + cancel:                                        {},
		cancel + "," + one + "," + cancel:                         {},
		cancel + "," + one + "," + cancel + "," + two:             {"2"},
		two + "," + one + "," + cancel:                            {"2"},
		requestJSON("1", "ping", "{}") + "," + cancel + "," + two: {"1", "2"},
	} {
		for _, accept := range []string{"application/json, text/event-stream", "application/json",
			"text/event-stream, */*;q=0.5"} {
			t.Run(batch+" "+accept, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHarness(t, nil)
					key, _ := h.initialize("2025-03-26", nil)
					go func() {
						for r := range h.heldRequests {
							time.Sleep(time.Second)
							r.Reply([]byte("{}"))
						}
					}()
					_, body := h.do(testRequest{session: key, body: "[" + batch + "]",
						header: map[string]string{"Accept": accept}})
					var results []string
					for _, id := range answered {
						results = append(results, resultJSON(id, "{}"))
					}
					want := "[" + strings.Join(results, ",") + "]"
					if len(answered) == 0 && strings.Contains(body, "result") ||
						len(answered) > 0 && !strings.Contains(body, want) {
						t.Errorf("got %q, want %s", body, want)
					}
					// None of the requests of the batch is in flight.
					h.want(post(key, requestJSON("1", "echo", "{}")), 200, resultJSON("1", "{}"))
					time.Sleep(time.Minute)
					close(h.heldRequests)
				})
			})
		}
	}
}

// A client that does not accept events got the errors of an ended session as events.
func TestBatchOfEndedSession_JSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-03-26", nil)
		var both sync.WaitGroup
		both.Go(func() {
			res, body := h.do(testRequest{session: key, header: map[string]string{
				"Accept": "application/json"},
				body: "[" + requestJSON("1", "hold", "{}") + "," + requestJSON("2", "hold", "{}") + "]"})
			var errs []struct {
				ID    int
				Error struct{ Message string }
			}
			if err := json.Unmarshal([]byte(body), &errs); err != nil || len(errs) != 2 ||
				errs[0].ID+errs[1].ID != 3 || errs[0].Error.Message != errSessionEnded.Message ||
				res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%v: got %s", err, body)
			}
		})
		<-h.heldRequests
		<-h.heldRequests
		handler.Writer.Close()
		both.Wait()
	})
}

// The response to a batch is an array, even if the batch has one request and the session ends.
func TestBatchOfOneRequest_SessionEnds_Array(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, accept := range []string{"application/json", "application/json, text/event-stream"} {
			h := newHarness(t, nil)
			key, handler := h.initialize("2025-03-26", nil)
			var call sync.WaitGroup
			call.Go(func() {
				_, body := h.do(testRequest{session: key,
					header: map[string]string{"Accept": accept},
					body:   "[" + requestJSON("1", "hold", "{}") + "]"})
				want := "[" + string(wire.NewErrorResponse("1", errSessionEnded).Raw()) + "]"
				if body != want {
					t.Errorf("Accept %s: got %s", accept, body)
				}
			})
			<-h.heldRequests
			handler.Writer.Close()
			call.Wait()
		}
	})
}

// A message is not delivered to a session that has been closed since it was registered.
func TestClosedBeforeDelivery_NotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-11-25", nil)
		s := h.server.sessions.find(key, sender{}, false)
		r, w := h.newRequest(post(key, requestJSON("1", "echo", "{}"))), httptest.NewRecorder()
		x := &httpExchange{srv: h.server, w: w, r: r}
		p, _ := x.readPost(s, true)
		defer p.lease.release()
		st, _, herr := s.registerPost(w, p)
		if herr != nil {
			t.Fatal(herr.err)
		}
		_ = s.Close()
		if err := s.deliver(t.Context(), p, st); err != transport.ErrClosed || st.delivered {
			t.Errorf("%v, delivered: %v", err, st.delivered)
		}
	})
}

// A cancellation that is delivered before the request with its id does not cancel the request.
func TestCancellationBeforeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-11-25", nil)
		s := h.server.sessions.find(key, sender{}, false)
		r, w := h.newRequest(post(key, requestJSON("1", "echo", "{}"))), httptest.NewRecorder()
		x := &httpExchange{srv: h.server, w: w, r: r}
		p, _ := x.readPost(s, true)
		defer p.lease.release()
		st, sw, herr := s.registerPost(w, p)
		if herr != nil {
			t.Fatal(herr.err)
		}
		h.want(post(key, cancelJSON("1")), 202, "")
		if err := s.deliver(t.Context(), p, st); err != nil {
			t.Fatal(err)
		}
		if x.writeResponse(s, p, st, sw, sseDelay); w.Body.String() != resultJSON("1", "{}") {
			t.Errorf("got %q", w.Body)
		}
	})
}

// A modern request in a batch is rejected by the SessionHandler; the other requests are served.
// In a session whose revision has no batches, the whole batch is rejected.
func TestBatchWithModernRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		modern := statelessRequest("2", "echo", "").body
		m, _ := wire.Parse([]byte(modern))
		rejected := string(wire.NewErrorResponse("2", protocol.RejectInBatch(m)).Raw())
		mixed := "[" + requestJSON("1", "echo", `{"a":1}`) + "," + modern + "," +
			requestJSON("3", "echo", `{"b":2}`) + "]"
		key, _ := h.initialize("2025-03-26", nil)
		for _, header := range []map[string]string{nil, {"Mcp-Protocol-Version": "2025-03-26"}} {
			h.want(testRequest{session: key, header: header, body: mixed}, 200,
				"["+resultJSON("1", `{"a":1}`)+","+rejected+","+resultJSON("3", `{"b":2}`)+"]")
			h.want(testRequest{session: key, header: header, body: "[" + modern + "]"}, 200,
				"["+rejected+"]")
		}
		held := "[" + modern + "," + requestJSON("1", "hold", "{}") + "]"
		s := h.openStream(post(key, held))
		(<-h.heldRequests).Reply([]byte("{}"))
		s.want("1-1", "["+rejected+","+resultJSON("1", "{}")+"]")
		s.wantEnd()
		// No request of the batch is left.
		h.want(post(key, requestJSON("2", "echo", "{}")), 200, resultJSON("2", "{}"))

		h.wantError(post(key, mixed).withRevision("2026-07-28"), 400, "null",
			wire.CodeInvalidRequest)
		h.wantError(testRequest{body: mixed}.withRevision("2026-07-28"), 400, "null",
			wire.CodeInvalidRequest)
		key, _ = h.initialize("2025-11-25", nil)
		h.wantError(post(key, mixed), 400, "null", wire.CodeInvalidRequest)
	})
}

// A second request with the id of a request in flight is rejected and does not affect the first.
func TestID_07_DuplicateRequestID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, _ := h.initialize("2025-11-25", nil)
		for _, id := range []string{"1", `"1"`, "null"} {
			first := h.openStream(post(key, requestJSON(id, "hold", `{}`)))
			r := <-h.heldRequests
			h.wantError(post(key, requestJSON(id, "echo", `{}`)), 400, id, wire.CodeInvalidRequest)
			h.wantError(post(key, requestJSON(id, "ping", `{}`)), 400, id, wire.CodeInvalidRequest)
			if first, err := first.next(); err != nil || first.data != "" {
				t.Errorf("%+v %v", first, err)
			}
			r.Reply([]byte(`{"n":1}`))
			if answer, err := first.next(); err != nil || answer.data != resultJSON(id, `{"n":1}`) {
				t.Errorf("%+v %v", answer, err)
			}
			first.wantEnd()
			h.want(post(key, requestJSON(id, "echo", `{}`)), 200, resultJSON(id, "{}"))
		}
		other, _ := h.initialize("2025-11-25", nil)
		a := h.openStream(post(key, requestJSON("1", "hold", `{}`)))
		// Another client uses the same id.
		b := h.openStream(post(other, requestJSON("1", "hold", `{}`)))
		(<-h.heldRequests).Reply([]byte(`"a"`))
		(<-h.heldRequests).Reply([]byte(`"b"`))
		a.want("4-0", "")
		a.want("4-1", resultJSON("1", `"a"`))
		b.want("1-0", "")
		b.want("1-1", resultJSON("1", `"b"`))
		a.wantEnd()
		b.wantEnd()
	})
}
