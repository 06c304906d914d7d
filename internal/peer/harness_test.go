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

// A testPeer is a conversation between a Peer and a far side that the test plays.
type testPeer struct {
	*peer.Peer
	remote        *mcptest.Peer
	requests      chan *peer.Request // what the far side asked
	notifications chan wire.Message
	runErr        chan error // what Run returned
	cancel        context.CancelFunc
}

// HandleRequest implements peer.Handler.
func (k *testPeer) HandleRequest(r *peer.Request) { k.requests <- r }

// HandleNotification implements peer.Handler.
func (k *testPeer) HandleNotification(m wire.Message, _ peer.Origin) { k.notifications <- m }

// inBubble runs a test of a conversation in a bubble, where time is virtual and a
// goroutine that is left fails the test.
func inBubble(t *testing.T, o peer.Options, test func(t *testing.T, k *testPeer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newTestPeer(t, o)) })
}

func newTestPeer(t *testing.T, o peer.Options) *testPeer {
	conn, far := mcptest.NewPeer(t, "far side")
	k := &testPeer{
		remote:        far,
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

// request makes a tools/call with a client's id; more is what else its params hold.
func request(id, more string) wire.Message {
	return message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t"%s}}`, id, more))
}

func message(text string) wire.Message {
	m, err := wire.Parse([]byte(text))
	if err != nil {
		panic(text + ": " + err.Error())
	}
	return m
}

// A recordingHandler is an ResponseHandler that notes what it gets.
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

// wantOutcome waits for everything to come to rest and returns how the call ended, ok
// being whether it did, once.
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

// send sends a call and returns who waits for it.
func (k *testPeer) send(m wire.Message, p *peer.Call) (*recordingHandler, *peer.Call) {
	c := &recordingHandler{}
	p.Handler = c
	k.Send(m, p)
	return c, p
}
