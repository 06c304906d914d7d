package peer_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A cancellingWriter cancels a call before it writes the request.
type cancellingWriter struct {
	recordingWriter
	call *peer.Call
}

func (w *cancellingWriter) Write(m wire.Message, relatedTo wire.ID) error {
	if m.Kind() == wire.Request {
		w.call.Cancel([]byte(`{"requestId":0,"reason":"no"}`))
	}
	return w.recordingWriter.Write(m, relatedTo)
}

// A call that is cancelled while its request is being written is cancelled at the remote side after
// the request, which would otherwise run. If the request cannot be written, there is no
// cancellation.
func TestCancelDuringWrite_CancellationFollowsRequest(t *testing.T) {
	for _, failure := range []error{nil, transport.ErrClosed} {
		w := &cancellingWriter{recordingWriter: recordingWriter{err: failure}}
		p := peer.NewPush(w, nil, peer.Options{})
		answer := make(peer.ResponseChan, 1)
		w.call = &peer.Call{Handler: answer}
		p.Send(request("7", ""), w.call)
		if resp := <-answer; resp.Err != peer.ErrCancelled {
			t.Errorf("%v: the call has ended with %v", failure, resp.Err)
		}
		want := []string{"tools/call", "notifications/cancelled"}
		if failure != nil {
			want = want[:1]
		}
		var got []string
		for _, text := range w.written {
			_, raw, _ := strings.Cut(text, " {")
			got = append(got, message("{"+raw).Method())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: %q were written, want %q", failure, got, want)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		p.DrainCalls(ctx) // nothing is still to be written
		if ctx.Err() != nil {
			t.Errorf("%v: DrainCalls waits", failure)
		}
		cancel()
	}
}
