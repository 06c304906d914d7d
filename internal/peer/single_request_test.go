package peer_test

import (
	"slices"
	"sync"
	"testing"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A recordingWriter is a transport.Writer that records its calls.
type recordingWriter struct {
	mu      sync.Mutex
	err     error // result of Write
	written []string
	closed  int
}

func (w *recordingWriter) Write(m wire.Message, relatedTo wire.ID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written = append(w.written, string(relatedTo)+" "+string(m.Raw()))
	return w.err
}

func (w *recordingWriter) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed++
	return nil
}

// newSingle returns a request without a Peer, the writer of its response, and its CancelHandler.
func newSingle(t *testing.T) (*peer.Request, *recordingWriter, *cancelRecorder) {
	w, o := &recordingWriter{}, &cancelRecorder{}
	r := peer.NewRequest(w, request(`"q"`, `,"_meta":{"progressToken":7}`))
	if !r.OnCancel(o) {
		t.Error("OnCancel has failed for an open request")
	}
	return r, w, o
}

const (
	progressOfSingle = `{"jsonrpc":"2.0","method":"notifications/progress"}`
	resultOfSingle   = `"q" {"jsonrpc":"2.0","id":"q","result":{}}`
)

// wantEnded checks that the request is not open, and that its response and its handler are not used
// again.
func wantEnded(t *testing.T, r *peer.Request, w *recordingWriter, o *cancelRecorder,
	cancellations int, written ...string) {
	t.Helper()
	r.Notify(message(progressOfSingle))
	r.Close(nil)
	r.Close(wire.Errorf(1, "late"))
	if r.Reply([]byte("{}")) || r.Fail(wire.Errorf(1, "x")) || r.OnCancel(o) ||
		r.ReplyAfter(func() { t.Error("ReplyAfter has called its function") }, []byte("{}")) ||
		r.Forward(message(`{"jsonrpc":"2.0","id":1,"result":1}`)) {
		t.Error("a request that has ended was used again")
	}
	if !slices.Equal(w.written, written) {
		t.Errorf("written %q, want %q", w.written, written)
	}
	for _, params := range o.cancellations {
		if params != "" {
			t.Errorf("the handler got the params %s", params)
		}
	}
	if len(o.cancellations) != cancellations {
		t.Errorf("the handler was called %d times, want %d", len(o.cancellations), cancellations)
	}
}

// Each method that responds to a request without a Peer writes one response, with the id of the
// request.
func TestNewRequest_IsAnsweredOnce(t *testing.T) {
	for name, c := range map[string]struct {
		respond func(*peer.Request) bool
		want    string
	}{
		"Reply": {func(r *peer.Request) bool { return r.Reply([]byte("{}")) }, resultOfSingle},
		"ReplyAfter": {func(r *peer.Request) bool {
			called := false
			return r.ReplyAfter(func() { called = true }, []byte("{}")) && called
		}, resultOfSingle},
		"Fail": {func(r *peer.Request) bool { return r.Fail(wire.Errorf(-32601, "no")) },
			`"q" {"jsonrpc":"2.0","id":"q","error":{"code":-32601,"message":"no"}}`},
		"Forward": {func(r *peer.Request) bool {
			return r.Forward(message(`{"result":{ },"id":4211,"jsonrpc":"2.0"}`))
		}, `"q" {"result":{ },"id":"q","jsonrpc":"2.0"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, o := newSingle(t)
			if r.RemoteID() != `"q"` || r.Token() != "7" || r.Origin() != (peer.Origin{}) {
				t.Errorf("id %s, token %s, origin %v", r.RemoteID(), r.Token(), r.Origin())
			}
			r.Notify(message(progressOfSingle))
			if !c.respond(r) {
				t.Error("the response was rejected")
			}
			wantEnded(t, r, w, o, 0, `"q" `+progressOfSingle, c.want)
		})
	}
}

// Close of a request without a Peer calls the handler, and writes a response only if it has an
// error.
func TestNewRequest_Close(t *testing.T) {
	r, w, o := newSingle(t)
	r.Close(nil)
	wantEnded(t, r, w, o, 1)

	r, w, o = newSingle(t)
	r.Close(wire.Errorf(-32000, "ending"))
	wantEnded(t, r, w, o, 1, `"q" {"jsonrpc":"2.0","id":"q","error":{"code":-32000,"message":"ending"}}`)

	r = peer.NewRequest(w, request("1", "")) // without a handler
	r.Close(nil)
	if r.Reply([]byte("{}")) {
		t.Error("a response was accepted")
	}
}

// A request without a Peer closes a Writer whose remote side does not read; it ignores other
// errors.
func TestNewRequest_DisconnectsARemoteSideThatDoesNotRead(t *testing.T) {
	for err, closed := range map[error]int{transport.ErrFull: 1, transport.ErrClosed: 0} {
		w := &recordingWriter{err: err}
		r := peer.NewRequest(w, request("1", ""))
		r.Notify(message(progressOfSingle))
		if w.closed != closed {
			t.Errorf("%v: closed %d times, want %d", err, w.closed, closed)
		}
		if !r.Reply([]byte("{}")) {
			t.Error("the request has ended without a response")
		}
	}
}

// A response and Close may happen at the same time: either the response is written or the handler
// is called.
func TestNewRequest_EndsOnce(t *testing.T) {
	for range 300 {
		w, o := &recordingWriter{}, &cancelRecorder{}
		r := peer.NewRequest(w, request("1", ""))
		var hasHandler, replied bool
		var all sync.WaitGroup
		all.Go(func() { hasHandler = r.OnCancel(o) })
		all.Go(func() { r.Notify(message(progressOfSingle)) })
		all.Go(func() { replied = r.Reply([]byte("{}")) })
		all.Go(func() { r.Close(nil) })
		all.Wait()
		responses := 0
		for _, text := range w.written {
			if text == `1 {"jsonrpc":"2.0","id":1,"result":{}}` {
				responses++
			}
		}
		if replied != (responses == 1) || responses > 1 ||
			replied && len(o.cancellations) > 0 || len(o.cancellations) > 1 ||
			!replied && hasHandler != (len(o.cancellations) == 1) {
			t.Fatalf("replied %v, handler %v; written %q, handler called %d times", replied,
				hasHandler, w.written, len(o.cancellations))
		}
	}
}

// The allocations of a request without a Peer and its response do not increase.
func TestAllocations_OfNewRequest(t *testing.T) {
	m, result := request("1", ""), []byte("{}")
	n := testing.AllocsPerRun(1000, func() { peer.NewRequest(discard{}, m).Reply(result) })
	if n > 3 {
		t.Errorf("%v allocations", n)
	}
}

// discard is a transport.Writer that discards everything.
type discard struct{}

func (discard) Write(wire.Message, wire.ID) error { return nil }
func (discard) Close() error                      { return nil }
