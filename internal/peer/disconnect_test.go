package peer_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/wire"
)

func TestALostCallFailsAlone(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		other, _ := k.send(request("1", ""), &peer.Call{})
		c, _ := k.send(request("2", ""), &peer.Call{})
		k.remote.FailRead(&transport.CallLostError{ID: "2", Err: errors.New("503"),
			MayHaveRun: true})
		k.remote.FailRead(&transport.CallLostError{ID: "9", Err: errors.New("nobody's"),
			MayHaveRun: true})
		_, err := c.wantOutcome(t)
		if lost, ok := errors.AsType[*transport.CallLostError](err); !ok || !lost.MayHaveRun ||
			err.Error() != "503" {
			t.Errorf("it ended with %v", err)
		}
		other.wantOpen(t)
	})
}

// A CallLostError may wrap the MalformedError that arrived instead of the response.
func TestALostCallWithMalformedInputFails(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		c, _ := k.send(request("1", ""), &peer.Call{})
		malformed := transport.NewMalformedError([]byte("<html>"), wire.Message{},
			errors.New("no JSON"))
		k.remote.FailRead(&transport.CallLostError{ID: "1",
			Err: fmt.Errorf("the answer is not a message: %w", malformed), MayHaveRun: true})
		if _, err := c.wantOutcome(t); err == nil ||
			err.Error() != "the answer is not a message: no JSON" {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestPROC_06_TheEndOfTheConnectionFailsAllCalls(t *testing.T) {
	for _, c := range []struct {
		name string
		die  func(*mcptest.Peer)
		want string
		run  error
	}{
		{"exit", func(p *mcptest.Peer) { p.Exit("exit 3", "boom") }, "exit 3; its last words: boom",
			&child.ExitError{Status: "exit 3", Stderr: "boom"}},
		{"end", func(p *mcptest.Peer) { p.CloseSend() }, "it closed the connection", nil},
		{"close", func(p *mcptest.Peer) { p.Close() }, "it closed the connection", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
				one, _ := k.send(request("1", ""), &peer.Call{Timeout: time.Hour})
				two, _ := k.send(request("2", ""), &peer.Call{})
				c.die(k.remote)
				for _, caller := range []*recordingHandler{one, two} {
					_, err := caller.wantOutcome(t)
					if lost, ok := errors.AsType[*transport.CallLostError](err); !ok ||
						!lost.MayHaveRun || err.Error() != c.want {
						t.Errorf("ended with %v, want %s", err, c.want)
					}
				}
				err := <-k.runErr
				if fmt.Sprint(err) != fmt.Sprint(c.run) {
					t.Errorf("Run: %v, want %v", err, c.run)
				}
				late, _ := k.send(request("3", ""), &peer.Call{Timeout: time.Second})
				_, err = late.wantOutcome(t)
				if lost, ok := errors.AsType[*transport.CallLostError](err); !ok ||
					lost.MayHaveRun || err.Error() != c.want {
					t.Errorf("a call after the end ended with %v, want %s", err, c.want)
				}
				if err := k.TrySend(request("4", ""), &peer.Call{}); !errors.Is(err,
					transport.ErrClosed) {
					t.Errorf("TrySend: %v", err)
				}
			})
		})
	}
}

func TestOnDisconnectIsCalledBeforeTheCallsEnd(t *testing.T) {
	calls := 0
	c := &recordingHandler{}
	over := func(error) {
		calls++
		if len(c.responses) != 0 {
			t.Error("the call has ended already")
		}
	}
	inBubble(t, peer.Options{OnDisconnect: over}, func(t *testing.T, k *testPeer) {
		k.Send(request("1", ""), &peer.Call{Handler: c})
		k.remote.CloseSend()
		c.wantOutcome(t)
		if calls != 1 {
			t.Errorf("OnDisconnect was called %d times", calls)
		}
	})
}

func TestSendRacesDisconnect(t *testing.T) {
	for range 150 {
		inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
			var all [8]*recordingHandler
			for i := range all {
				all[i] = &recordingHandler{}
				go func() {
					time.Sleep(time.Second)
					k.Send(request("1", ""), &peer.Call{Handler: all[i], Timeout: time.Minute})
				}()
			}
			time.Sleep(time.Second)
			k.remote.Close()
			synctest.Wait()
			for _, c := range all {
				if _, err := c.wantOutcome(t); err == nil {
					t.Error("a call was not completed")
				}
			}
		})
	}
}

// endingConn is a Conn whose Write returns only after the connection has ended.
type endingConn struct {
	transport.Conn
	over chan struct{} // closed when the connection has ended
	err  error         // returned by Write
}

func (e *endingConn) Write(m wire.Message, about wire.ID) error {
	if e.err == nil {
		if err := e.Conn.Write(m, about); err != nil {
			return err
		}
	}
	_ = e.Conn.Close()
	<-e.over
	return e.err
}

// If the write of a call fails while the connection ends, the call did not run: TrySend returns the
// error, and the call may be sent again. If the write succeeds, the call fails and may have run.
func TestDisconnectDuringAWrite_F_HTTP_13(t *testing.T) {
	for _, failure := range []error{transport.ErrClosed, nil} {
		synctest.Test(t, func(t *testing.T) {
			conn, _ := mcptest.NewPeer(t, "remote side")
			e := &endingConn{Conn: conn, over: make(chan struct{}), err: failure}
			p := peer.New(e, &testPeer{}, peer.Options{})
			go func() {
				_ = p.Run(t.Context())
				close(e.over)
			}()
			handler := &recordingHandler{}
			c := &peer.Call{Handler: handler}
			err := p.TrySend(request("1", ""), c)
			if failure != nil {
				handler.wantOpen(t)
				if !errors.Is(err, transport.ErrClosed) || !c.SentAt().IsZero() {
					t.Errorf("a failed write: %v, sent %v", err, c.SentAt())
				}
				return
			}
			_, why := handler.wantOutcome(t)
			if lost, ok := errors.AsType[*transport.CallLostError](why); err != nil || !ok ||
				!lost.MayHaveRun {
				t.Errorf("a write that succeeded: %v, ended with %v", err, why)
			}
		})
	}
}
