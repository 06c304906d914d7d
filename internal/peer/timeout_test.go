package peer_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// An endHandler records the time and the error with which its call ends.
type endHandler struct {
	mu    sync.Mutex
	began time.Time
	took  time.Duration
	err   error
	ended int
}

func (h *endHandler) OnProgress(wire.Message) {}

func (h *endHandler) OnResponse(_ wire.Message, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.took, h.err, h.ended = time.Since(h.began), err, h.ended+1
}

// restart forgets the end of the call, which is sent again now.
func (h *endHandler) restart() {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began, h.ended = time.Now(), 0
}

// startCall sends a call with a timeout.
func (k *testPeer) startCall(timeout time.Duration) (*peer.Call, *endHandler) {
	h := &endHandler{began: time.Now()}
	c := &peer.Call{Handler: h, Timeout: timeout, SessionID: "s"}
	k.Send(request("1", ""), c)
	return c, h
}

func (h *endHandler) wantTimeout(t *testing.T, after time.Duration) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != 1 || !errors.Is(h.err, peer.ErrTimeout) || h.took != after {
		t.Errorf("ended %d times, after %v, with %v; want a timeout after %v", h.ended, h.took,
			h.err, after)
	}
}

func (h *endHandler) wantOpen(t *testing.T) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != 0 {
		t.Errorf("ended after %v with %v", h.took, h.err)
	}
}

// Thousands of calls have one timer, and each of them ends exactly at its own limit. Calls that
// were answered or cancelled do not end again.
func TestEachCallTimesOutAtItsOwnLimit(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		const n = 3000
		limits := []time.Duration{time.Minute, time.Minute, time.Minute, time.Second, time.Hour, 0}
		var handlers []*endHandler
		for i := range n {
			c, h := k.startCall(limits[i%len(limits)])
			handlers = append(handlers, h)
			k.remote.Next()
			time.Sleep(time.Millisecond)
			switch i % 7 {
			case 0:
				k.remote.SendResult(c.ID(), "{}")
			case 1:
				c.Cancel(nil)
				k.remote.WantNotification("notifications/cancelled")
			}
			k.remote.TakeAll()
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for i, h := range handlers {
			switch limit := limits[i%len(limits)]; {
			case i%7 == 0 && (h.ended != 1 || h.err != nil),
				i%7 == 1 && (h.ended != 1 || !errors.Is(h.err, peer.ErrCancelled)):
				t.Fatalf("call %d ended %d times, with %v", i, h.ended, h.err)
			case i%7 <= 1:
			case limit == 0:
				h.wantOpen(t)
			default:
				h.wantTimeout(t, limit)
			}
		}
		k.remote.TakeAll()
	})
}

// The timeout of a call does not end with a pause or the progress of another call.
func TestTimeoutsAreIndependent(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		const limit = 10 * time.Second
		paused, onPaused := k.startCall(limit)
		busy, onBusy := k.startCall(limit)
		_, onPlain := k.startCall(limit)
		time.Sleep(4 * time.Second)
		paused.PauseTimeout()
		k.remote.Sendf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`,
			busy.ID())
		_, onShort := k.startCall(time.Second)
		time.Sleep(time.Second)
		onShort.wantTimeout(t, time.Second)
		time.Sleep(5 * time.Second)
		onPlain.wantTimeout(t, limit)
		onBusy.wantOpen(t)
		paused.ResumeTimeout() // after 10 s
		time.Sleep(4*time.Second - 1)
		onBusy.wantOpen(t)
		time.Sleep(time.Nanosecond)
		onBusy.wantTimeout(t, 14*time.Second)
		time.Sleep(6*time.Second - 1)
		onPaused.wantOpen(t)
		time.Sleep(time.Nanosecond)
		onPaused.wantTimeout(t, 20*time.Second)
	})
}

// A call that was paused before it was sent again has no timeout until it is resumed, over any
// Peer.
func TestTimeoutOfACallSentAgainOverAnotherPeer(t *testing.T) {
	for _, pauseBetween := range []bool{false, true} {
		inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
			conn, remote := mcptest.NewPeer(t, "other remote side")
			other := peer.New(conn, k, peer.Options{})
			ended := make(chan error, 1)
			go func() { ended <- other.Run(t.Context()) }()
			defer func() { remote.Close(); <-ended }()

			c, h := k.startCall(time.Minute)
			time.Sleep(50 * time.Second)
			k.remote.SendResult(c.ID(), "{}")
			h.restart()
			if pauseBetween {
				c.PauseTimeout()
			}
			if err := other.TrySend(request("1", ""), c); err != nil {
				t.Fatal(err)
			}
			want := time.Minute
			if pauseBetween {
				time.Sleep(time.Hour)
				h.wantOpen(t)
				c.ResumeTimeout()
				want += time.Hour
			}
			time.Sleep(time.Minute)
			h.wantTimeout(t, want)
		})
	}
}

// A call that is sent again without a Timeout does not keep the limit of the first time.
func TestTimeoutIsRemovedBetweenTwoTries(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		_, other := k.startCall(2 * time.Minute)
		c, h := k.startCall(time.Minute)
		k.remote.SendResult(c.ID(), "{}")
		h.restart()
		c.Timeout = 0
		if err := k.TrySend(request("1", ""), c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		h.wantOpen(t)
		other.wantTimeout(t, 2*time.Minute)
	})
}

func TestATimeoutCancelsTheCall(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		began := time.Now()
		c, _ := k.send(request(`"c"`, ""), &peer.Call{Timeout: 2 * time.Second})
		k.remote.Next()
		k.remote.Want(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"no answer in time","requestId":1}}`)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, err := c.wantOutcome(t); !errors.Is(err, peer.ErrTimeout) {
			t.Errorf("it ended with %v", err)
		}
		k.remote.SendResult("1", "{}") // late
		c.wantOutcome(t)
		k.remote.WantNothing()
	})
}

func TestCONC_07_ProgressRenewsTheTimeout(t *testing.T) {
	for _, token := range []wire.ID{`"p"`, ""} {
		t.Run("token "+string(token), func(t *testing.T) {
			inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
				c, _ := k.send(request("1", ""), &peer.Call{Timeout: 3 * time.Second, Token: token})
				k.remote.Next()
				for range 10 {
					time.Sleep(2900 * time.Millisecond)
					k.remote.Send(
						`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}`)
				}
				c.wantOpen(t)
				time.Sleep(3 * time.Second)
				if _, err := c.wantOutcome(t); !errors.Is(err, peer.ErrTimeout) {
					t.Errorf("it ended with %v", err)
				}
			})
		})
	}
}

// A paused call does not time out; the last ResumeTimeout restarts its timeout.
func TestPausedTimeout(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprint("before Send ", early), func(t *testing.T) {
			inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
				p := &peer.Call{Timeout: 3 * time.Second}
				if early {
					p.PauseTimeout()
				}
				c, _ := k.send(request("1", ""), p)
				k.remote.Next()
				time.Sleep(2 * time.Second)
				if !early {
					p.PauseTimeout()
				}
				p.PauseTimeout()
				time.Sleep(time.Hour)
				k.remote.Send(
					`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}`)
				time.Sleep(time.Hour)
				p.ResumeTimeout()
				time.Sleep(time.Hour)
				c.wantOpen(t)
				p.ResumeTimeout()
				time.Sleep(3*time.Second - 1)
				c.wantOpen(t)
				time.Sleep(time.Nanosecond)
				if _, err := c.wantOutcome(t); !errors.Is(err, peer.ErrTimeout) {
					t.Errorf("it ended with %v", err)
				}
				p.PauseTimeout()
				p.ResumeTimeout() // the call has ended
				time.Sleep(time.Hour)
				c.wantOutcome(t)
			})
		})
	}
}
