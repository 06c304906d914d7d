package backends

import (
	"context"
	"slices"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A listenFilter is what a listen requests.
type listenFilter struct {
	lists []string // flags of the lists whose changes are requested, by kind
	uris  []string
}

// listenFlags are the flags of the lists; templates have none of their own.
var listenFlags = [catalog.NumKinds]string{catalog.Tools: "toolsListChanged",
	catalog.Prompts: "promptsListChanged", catalog.Resources: "resourcesListChanged"}

func (f listenFilter) isEmpty() bool { return len(f.lists)+len(f.uris) == 0 }

func (f listenFilter) params() []byte {
	all := make(map[string]any)
	for _, flag := range f.lists {
		all[flag] = true
	}
	if len(f.uris) > 0 {
		all["resourceSubscriptions"] = f.uris
	}
	return wire.Encode(map[string]any{"notifications": all})
}

// A listenStream is one subscriptions/listen.
type listenStream struct {
	listenFilter
	call        *peer.Call
	acked       chan []byte // capacity 1: the notifications that the server has acknowledged
	ended       peer.ResponseChan
	openedAt    time.Time
	acceptedAll bool     // the server has not stated which URIs it accepts
	accepted    []string // acknowledged URIs
}

func (ls *listenStream) covers(uri string) bool {
	return ls.acceptedAll || slices.Contains(ls.accepted, uri)
}

// matches reports whether a notification belongs to this listen, or names no listen.
func (ls *listenStream) matches(m wire.Message) bool {
	id := protocol.SubscriptionID(m)
	return id == "" || string(id) == string(ls.call.ID()) ||
		wire.Unquote([]byte(id)) == string(ls.call.ID())
}

// open opens a listen and waits until the server has acknowledged it. After ackTimeout it assumes
// that the server has accepted all URIs. It fails if the listen cannot be sent, or ends before the
// acknowledgement, or ctx is done.
func (ll *listenLoop) open(ctx context.Context, wanted listenFilter) (*listenStream, error) {
	bc := ll.link.conn
	ls := &listenStream{listenFilter: wanted, acked: make(chan []byte, 1),
		ended: make(peer.ResponseChan, 1), openedAt: time.Now()}
	// over HTTP the server ends the stream instead
	ls.call = &peer.Call{Handler: ls.ended, Internal: true, RemoteCancels: !bc.b.hasManyStreams()}
	bc.mu.Lock()
	bc.subs.opening = ls
	bc.mu.Unlock()
	defer func() {
		bc.mu.Lock()
		bc.subs.opening = nil
		bc.mu.Unlock()
	}()
	m := wire.NewRequest("0", protocol.MethodSubscriptionsListen, wanted.params())
	if err := ll.link.peer.TrySend(ll.link.withClientMeta(m, "", false), ls.call); err != nil {
		return nil, err
	}
	select {
	case acknowledged := <-ls.acked:
		ls.readAcknowledged(acknowledged)
	case a := <-ls.ended:
		return nil, listenError(a)
	case <-time.After(ackTimeout):
		bc.log.Warn("subscriptions/listen not acknowledged; assuming acceptance")
		ls.acceptedAll = true
	case <-ctx.Done():
		ls.call.Cancel(nil)
		return nil, ctx.Err()
	}
	return ls, nil
}

// listenError returns the reason for the end of a listen that was not acknowledged.
func listenError(a peer.Response) error {
	if failure := a.Part(wire.PartError); a.Err == nil && failure != nil {
		return wire.ReadError(failure)
	}
	if a.Err == nil || a.Err == peer.ErrCancelled { // refused in another form
		return wire.Errorf(wire.CodeInternalError,
			"subscriptions/listen ended without an acknowledgement")
	}
	return a.Err
}

// readAcknowledged parses the acknowledgement.
func (ls *listenStream) readAcknowledged(params []byte) {
	list, _ := wire.Lookup(params, "notifications")
	if !wire.IsObject(list) {
		ls.acceptedAll = true
		return
	}
	uris, _ := wire.Lookup(list, "resourceSubscriptions")
	ls.accepted = stringArray(uris)
}
