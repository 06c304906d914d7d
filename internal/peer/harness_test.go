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

// A talk is a conversation between a Peer and a far side that the test plays.
type talk struct {
	*peer.Peer
	far   *mcptest.Peer
	asked chan *peer.Request // what the far side asked
	told  chan wire.Message
	ended chan error // what Run returned
	hang  context.CancelFunc
}

// HandleRequest implements peer.Handler.
func (k *talk) HandleRequest(r *peer.Request) { k.asked <- r }

// HandleNotification implements peer.Handler.
func (k *talk) HandleNotification(m wire.Message, _ peer.Origin) { k.told <- m }

// inBubble runs a test of a conversation in a bubble, where time is virtual and a
// goroutine that is left fails the test.
func inBubble(t *testing.T, o peer.Options, test func(t *testing.T, k *talk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newTalk(t, o)) })
}

func newTalk(t *testing.T, o peer.Options) *talk {
	conn, far := mcptest.NewPeer(t, "far side")
	k := &talk{
		far:   far,
		asked: make(chan *peer.Request, 100),
		told:  make(chan wire.Message, 100),
		ended: make(chan error, 1),
	}
	k.Peer = peer.New(conn, k, o)
	ctx, cancel := context.WithCancel(context.Background())
	k.hang = cancel
	var running sync.WaitGroup
	running.Go(func() { k.ended <- k.Run(ctx) })
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

// A caller is an ResponseHandler that notes what it gets.
type caller struct {
	mu       sync.Mutex
	progress []string
	answers  []wire.Message
	errs     []error
}

// OnProgress implements peer.ResponseHandler.
func (c *caller) OnProgress(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress = append(c.progress, fmt.Sprintf("%s, %d answers", m.Raw(), len(c.answers)))
}

// OnResponse implements peer.ResponseHandler.
func (c *caller) OnResponse(m wire.Message, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, m)
	c.errs = append(c.errs, err)
}

// end waits for everything to come to rest and returns how the call ended, ok
// being whether it did, once.
func (c *caller) end(t *testing.T) (m wire.Message, err error) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) != 1 {
		t.Fatalf("the call has ended %d times, want once", len(c.answers))
	}
	return c.answers[0], c.errs[0]
}

func (c *caller) isOpen(t *testing.T) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) != 0 {
		t.Fatalf("the call has ended: %s, %v", c.answers[0].Raw(), c.errs[0])
	}
}

// send sends a call and returns who waits for it.
func (k *talk) send(m wire.Message, p *peer.Call) (*caller, *peer.Call) {
	c := &caller{}
	p.Handler = c
	k.Send(m, p)
	return c, p
}
