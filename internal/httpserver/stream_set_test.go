package httpserver

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"mcpgateway/internal/wire"
)

func parsed(t *testing.T, text string) wire.Message {
	t.Helper()
	m, err := wire.Parse([]byte(text))
	if err != nil {
		t.Fatal(text, err)
	}
	return m
}

// newPosted returns a posted message with these requests.
func newPosted(t *testing.T, ids ...wire.ID) *postedMessage {
	q := &bodyQuota{limit: 1 << 20, byKey: make(map[quotaKey]int64)}
	p := &postedMessage{lease: q.newLease(quotaKey{}), requestIDs: ids}
	p.m = parsed(t, requestJSON(string(ids[0]), "echo", "{}"))
	if len(ids) > 1 {
		p.m = wire.NewBatch([]wire.Message{p.m})
	}
	return p
}

const (
	serverRequest = `{"jsonrpc":"2.0","id":"s","method":"roots/list"}`
	notification  = `{"jsonrpc":"2.0","method":"notifications/progress"}`
)

// The stream of a message depends on its kind, on the request to which it is related, and on the
// exchanges that send the streams.
func TestStreamSet_Route(t *testing.T) {
	const none, ofPost, standalone = "none", "POST", "standalone"
	for name, c := range map[string]struct {
		change    func(set *streamSet, st *sseStream)
		m         string
		relatedTo wire.ID
		want      string
	}{
		"response":                  {m: resultJSON("1", "{}"), want: ofPost},
		"response to another id":    {m: resultJSON("2", "{}"), relatedTo: "1", want: none},
		"notification":              {m: notification, want: standalone},
		"related notification":      {m: notification, relatedTo: "1", want: ofPost},
		"notification of a past id": {m: notification, relatedTo: "2", want: standalone},
		"server request":            {m: serverRequest, want: standalone},
		"related server request":    {m: serverRequest, relatedTo: "1", want: ofPost},
		"batch":                     {m: "[" + resultJSON("2", "{}") + "]", relatedTo: "1", want: ofPost},
		"batch with the response": {
			m: "[" + resultJSON("2", "{}") + "," + resultJSON("1", "{}") + "]", want: ofPost},
		"batch of other responses": {m: "[" + resultJSON("2", "{}") + "]", want: none},
		"notification for JSON": {func(_ *streamSet, st *sseStream) { st.jsonOnly = true },
			notification, "1", standalone},
		"response as JSON": {func(_ *streamSet, st *sseStream) { st.jsonOnly = true },
			resultJSON("1", "{}"), "", ofPost},
		"notification, disconnected": {func(set *streamSet, st *sseStream) {
			st.resumption = resumable
			set.detach(st, st.writer)
		}, notification, "1", ofPost},
		"notification, not resumable": {func(set *streamSet, st *sseStream) {
			set.detach(st, st.writer)
		}, notification, "1", standalone},
		"response, not resumable": {func(set *streamSet, st *sseStream) {
			set.detach(st, st.writer)
		}, resultJSON("1", "{}"), "", ofPost},
		"server request, disconnected": {func(set *streamSet, st *sseStream) {
			st.resumption = resumable
			set.detach(st, st.writer)
		}, serverRequest, "1", ofPost},
		"server request, only standalone has a reader": {func(set *streamSet, st *sseStream) {
			st.resumption = resumable
			set.detach(st, st.writer)
			set.attach(set.standalone, newStreamWriter(discardWriter{}))
		}, serverRequest, "1", standalone},
		"server request, both have readers": {func(set *streamSet, st *sseStream) {
			set.attach(set.standalone, newStreamWriter(discardWriter{}))
		}, serverRequest, "1", ofPost},
	} {
		t.Run(name, func(t *testing.T) {
			set := newStreamSet(false)
			st := set.open(newPosted(t, "1"), newStreamWriter(discardWriter{}))
			if c.change != nil {
				c.change(&set, st)
			}
			got := "another"
			switch set.route(parsed(t, c.m), c.relatedTo) {
			case nil:
				got = none
			case st:
				got = ofPost
			case set.standalone:
				got = standalone
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// With HTTP+SSE all messages are sent on the standalone stream, which drops what it has sent.
func TestStreamSet_OfHTTPSSE(t *testing.T) {
	set, sw := newStreamSet(true), newStreamWriter(discardWriter{})
	st := set.standalone
	st.writer = sw
	for _, text := range []string{resultJSON("1", "{}"), notification, serverRequest,
		"[" + resultJSON("2", "{}") + "]"} {
		if got := set.route(parsed(t, text), "1"); got != st {
			t.Errorf("%s: another stream", text)
		}
		set.write(st, parsed(t, text))
	}
	batch, first, more := set.next(st, sw, nil)
	if len(batch) != 4 || first != 1 || !more || set.idPrefix(st) != "" {
		t.Errorf("%q, %d, %v", batch, first, more)
	}
	if batch, first, _ = set.next(st, sw, batch); len(batch) != 0 || first != 5 ||
		set.unsent != 0 || set.retained != 0 {
		t.Errorf("%q, %d; unsent %d, retained %d", batch, first, set.unsent, set.retained)
	}
}

// The stream of a batch is complete when all its requests are answered or cancelled.
func TestStreamSet_Answers(t *testing.T) {
	set := newStreamSet(false)
	p := newPosted(t, "1", "2", "3")
	st := set.open(p, newStreamWriter(discardWriter{}))
	p.lease.release()
	set.cancel("2")
	set.cancel("2")
	if st.done || len(set.openRequests) != 2 {
		t.Errorf("done %v, %d open", st.done, len(set.openRequests))
	}
	set.write(st, parsed(t, "["+resultJSON("1", "{}")+","+resultJSON("3", "{}")+"]"))
	if !st.done || set.openRequests != nil || st.lease != nil || p.lease.refs != 0 {
		t.Errorf("done %v, %d open, %d references", st.done, len(set.openRequests), p.lease.refs)
	}
}

// The server requests on the stream of a cancelled request, which nobody reads, move to the
// standalone stream.
func TestStreamSet_CancelMovesServerRequests(t *testing.T) {
	set := newStreamSet(false)
	st := set.open(newPosted(t, "1"), newStreamWriter(discardWriter{}))
	set.assignNumber(st)
	st.resumption = resumable
	for _, text := range []string{notification, serverRequest} {
		set.write(st, parsed(t, text))
	}
	set.detach(st, st.writer)
	set.cancel("1")
	if got := set.standalone.events; len(got) != 1 || string(got[0].Bytes()) != serverRequest {
		t.Errorf("standalone stream: %q", got)
	}
	if st.resumption != abandoned || len(st.events) != 0 || len(set.numbered) != 0 {
		t.Errorf("the stream was not abandoned: %+v", st)
	}
}

// After any sequence of operations the counted bytes are the sums of all streams, an abandoned
// stream retains nothing, and each reader gets consecutive events.
func TestStreamSet_CountsBytes(t *testing.T) {
	const limit = 2000
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		set := newStreamSet(false)
		all := []*sseStream{set.standalone}
		batches := make(map[*sseStream][]wire.Text)
		firsts := make(map[*sseStream]int) // number of the next event
		for step := range 200 {
			st := all[rnd.IntN(len(all))]
			switch op := rnd.IntN(12); op {
			case 0:
				st = set.open(newPosted(t, wire.ID(strconv.Itoa(step))),
					newStreamWriter(discardWriter{}))
				set.assignNumber(st)
				all, firsts[st] = append(all, st), 1
			case 1:
				if len(st.unanswered) > 0 {
					set.cancel(st.unanswered[0])
				}
			case 2:
				if len(st.unanswered) > 0 {
					set.write(st, parsed(t, resultJSON(string(st.unanswered[0]), "{}")))
				}
			case 3, 4, 5:
				var id wire.ID
				if len(st.unanswered) > 0 {
					id = st.unanswered[0]
				}
				m := parsed(t, []string{notification, serverRequest}[rnd.IntN(2)])
				if to := set.route(m, id); !to.done {
					set.write(to, m)
				}
			case 6:
				if st.writer != nil {
					set.detach(st, st.writer)
					delete(batches, st)
				}
			case 7:
				lastSeen := st.dropped + rnd.IntN(len(st.events)+1)
				if set.byNumber(st.number) == st {
					got, herr := set.resume(newStreamWriter(discardWriter{}),
						eventID(st.number, lastSeen))
					if herr != nil || got != st {
						t.Fatalf("seed %d: %v", seed, herr)
					}
					delete(batches, st)
					firsts[st] = lastSeen + 1
				}
			case 8:
				set.dropRetained()
			default:
				if st.writer == nil {
					break
				}
				batch, first, _ := set.next(st, st.writer, batches[st])
				if want := firsts[st] + len(batches[st]); first != want {
					t.Fatalf("seed %d: event %d, want %d", seed, first, want)
				}
				batches[st], firsts[st] = batch, first
			}
			if rnd.IntN(4) == 0 {
				set.evict(limit)
			}
			unsent, retained := 0, streamOverhead*len(set.numbered)
			for _, st := range all {
				sizes := [2]int{}
				for i, text := range st.events {
					if i < st.sent {
						sizes[0] += eventSize(text)
					} else {
						sizes[1] += eventSize(text)
					}
				}
				if sizes != [2]int{st.retained, st.unsent} {
					t.Fatalf("seed %d: sizes %v, counted %d, %d", seed, sizes, st.retained,
						st.unsent)
				}
				retained += st.retained
				if st.writer != nil {
					unsent += st.unsent
				} else {
					retained += st.unsent
				}
				if st.resumption == abandoned && (len(st.events) > 0 ||
					slices.Contains(set.numbered, st)) {
					t.Fatalf("seed %d: an abandoned stream is retained", seed)
				}
			}
			if unsent != set.unsent || retained != set.retained {
				t.Fatalf("seed %d: unsent %d, retained %d; counted %d, %d", seed, unsent, retained,
					set.unsent, set.retained)
			}
		}
		set.close()
		if set.evict(limit); set.retained != 0 || set.openRequests != nil {
			t.Errorf("seed %d: %d bytes are retained, %d requests are open", seed, set.retained,
				len(set.openRequests))
		}
	}
}
