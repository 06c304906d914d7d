package peer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// A testPeer is a Peer; the test acts as its remote side.
type testPeer struct {
	*peer.Peer
	remote        *mcptest.Peer
	requests      chan *peer.Request // received requests
	notifications chan wire.Message
	runErr        chan error // result of Run
	cancel        context.CancelFunc
}

// HandleRequest implements peer.Handler.
func (k *testPeer) HandleRequest(r *peer.Request) { k.requests <- r }

// HandleNotification implements peer.Handler.
func (k *testPeer) HandleNotification(m wire.Message, _ peer.Origin) { k.notifications <- m }

// inBubble runs a test in a synctest bubble, where time is virtual and a leaked goroutine fails the
// test.
func inBubble(t *testing.T, o peer.Options, test func(t *testing.T, k *testPeer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newTestPeer(t, o)) })
}

func newTestPeer(t *testing.T, o peer.Options) *testPeer {
	conn, remote := mcptest.NewPeer(t, "remote side")
	k := &testPeer{
		remote:        remote,
		requests:      make(chan *peer.Request, 100),
		notifications: make(chan wire.Message, 100),
		runErr:        make(chan error, 1),
	}
	k.Peer = peer.New(conn, k, o)
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	var running sync.WaitGroup
	running.Go(func() { k.runErr <- k.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		k.Close()
	})
	return k
}

// request returns a tools/call with this id; more contains further members of its params.
func request(id, more string) wire.Message {
	return message(
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t"%s}}`, id,
			more))
}

func message(text string) wire.Message {
	m, err := wire.Parse([]byte(text))
	if err != nil {
		panic(text + ": " + err.Error())
	}
	return m
}

// A recordingHandler is a ResponseHandler that records its calls.
type recordingHandler struct {
	mu        sync.Mutex
	progress  []string
	responses []wire.Message
	errs      []error
}

// OnProgress implements peer.ResponseHandler.
func (c *recordingHandler) OnProgress(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = append(c.progress, fmt.Sprintf("%s, %d answers", m.Raw(), len(c.responses)))
}

// OnResponse implements peer.ResponseHandler.
func (c *recordingHandler) OnResponse(m wire.Message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.responses = append(c.responses, m)
	c.errs = append(c.errs, err)
}

// wantOutcome waits until all goroutines are idle, checks that the call has ended once, and
// returns its outcome.
func (c *recordingHandler) wantOutcome(t *testing.T) (m wire.Message, err error) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.responses) != 1 {
		t.Fatalf("the call has ended %d times, want once", len(c.responses))
	}
	return c.responses[0], c.errs[0]
}

func (c *recordingHandler) wantOpen(t *testing.T) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.responses) != 0 {
		t.Fatalf("the call has ended: %s, %v", c.responses[0].Raw(), c.errs[0])
	}
}

// send sends a call and returns its handler.
func (k *testPeer) send(m wire.Message, p *peer.Call) (*recordingHandler, *peer.Call) {
	c := &recordingHandler{}
	p.Handler = c
	k.Send(m, p)
	return c, p
}
