package peer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/wire"
)

func TestResponsesFindTheirCalls(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		var all []*recordingHandler
		for i := range 5 {
			c, _ := k.send(request(`"same"`, fmt.Sprintf(`,"n":%d`, i)), &peer.Call{})
			all = append(all, c)
		}
		for i := range 5 {
			k.remote.Want(
				fmt.Sprintf(
					`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","n":%d}}`,
					i+1, i))
		}
		for _, i := range []int{4, 0, 2, 1, 3} {
			k.remote.SendResult(wire.ID(fmt.Sprint(i+1)), fmt.Sprintf(`{"n":%d}`, i))
		}
		for i, c := range all {
			m, err := c.wantOutcome(t)
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}`, i+1,
				i); err != nil || string(m.Raw()) != want {
				t.Errorf("call %d: got %s, %v\nwant %s", i, m.Raw(), err, want)
			}
		}
	})
}

func TestOnlyIDTokenAndNameOfACallAreReplaced(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		m := message(
			`{ "x":1, "params":{"arguments":{"id":5,"name":"t","id":5,"progressToken":1e400},"_meta":{"vendor":"\u003c","progressToken":"p"},` +
				`"name":"gh__t"} ,"method":"tools/call","id":"c" ,"jsonrpc":"2.0"}`)
		k.send(m, &peer.Call{Name: []byte(`"own/t"`), Token: `"p"`})
		k.remote.Want(
			`{ "x":1, "params":{"arguments":{"id":5,"name":"t","id":5,"progressToken":1e400},"_meta":{"vendor":"\u003c","progressToken":1},` +
				`"name":"own/t"} ,"method":"tools/call","id":1 ,"jsonrpc":"2.0"}`)
	})
}

func TestErrorResponsesAreForwardedUnchanged(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		c, _ := k.send(request("1", ""), &peer.Call{})
		k.remote.Send(
			`{"error": {"code":-32042,"message":"\u00e9","data":{"x":1.0},"odd":[]}, "id":1,"jsonrpc":"2.0"}`)
		m, err := c.wantOutcome(t)
		if want := `{"error": {"code":-32042,"message":"\u00e9","data":{"x":1.0},"odd":[]}, "id":1,"jsonrpc":"2.0"}`; err != nil || string(m.Raw()) != want {
			t.Errorf("got %s, %v\nwant %s", m.Raw(), err, want)
		}
	})
}

func TestID_02_AStringIDIsAcceptedWithOneWarning(t *testing.T) {
	log, logger := mcptest.NewLog()
	inBubble(t, peer.Options{Log: func() *slog.Logger { return logger }},
		func(t *testing.T, k *testPeer) {
			for i := 1; i <= 3; i++ {
				c, _ := k.send(request("1", ""), &peer.Call{})
				k.remote.SendResult(wire.ID(fmt.Sprintf(`"%d"`, i)), "{}")
				if m, err := c.wantOutcome(t); err != nil || m.Part(wire.PartResult) == nil {
					t.Errorf("call %d: %s, %v", i, m.Raw(), err)
				}
			}
			if warnings := log.Warnings(); len(warnings) != 1 ||
				!strings.Contains(warnings[0], "string in place of") {
				t.Errorf("logged %q, want one warning", warnings)
			}
		})
}

// A string that does not contain a number is not taken for the id of a call, so that there is no
// warning.
func TestOtherStringsAreNotAcceptedAsIDs(t *testing.T) {
	log, logger := mcptest.NewLog()
	inBubble(t, peer.Options{Log: func() *slog.Logger { return logger }},
		func(t *testing.T, k *testPeer) {
			k.remote.Send(`{"jsonrpc":"1.0","id":"init-1","method":"ping"}`)
			k.remote.Next()
			if lines := log.Lines("string in place of"); len(lines) != 0 {
				t.Errorf("logged %q", lines)
			}
		})
}

func TestNOTIF_15_UnknownResponsesAreDropped(t *testing.T) {
	log, logger := mcptest.NewLog()
	inBubble(t, peer.Options{Log: func() *slog.Logger { return logger }},
		func(t *testing.T, k *testPeer) {
			c, _ := k.send(request("1", ""), &peer.Call{})
			k.remote.Next()
			for _, id := range []wire.ID{"999999", "null", "0", "-1", "2", `""`, `"x"`, "1.0",
				"1e0",
				"99999999999999999999"} {
				k.remote.SendResult(id, "{}")
				k.remote.SendError(id, `{"code":-1,"message":"x"}`)
			}
			k.remote.WantNothing()
			c.wantOpen(t)
			k.remote.SendResult("1", "{}")
			if _, err := c.wantOutcome(t); err != nil {
				t.Error(err)
			}
			if warnings := log.Warnings(); len(warnings) != 1 {
				t.Errorf("logged %q, want one warning", warnings)
			}
		})
}

func TestNOTIF_04_ProgressArrivesInOrderBeforeTheResult(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		c, _ := k.send(request("1", `,"_meta":{"progressToken":"p"}`), &peer.Call{Token: `"p"`})
		k.remote.Next()
		for i := range 3 {
			k.remote.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d,"progressToken":1}}`, i)
		}
		k.remote.SendResult("1", "{}")
		// too late
		k.remote.Send(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":9,"progressToken":1}}`)
		c.wantOutcome(t)
		want := make([]string, 3)
		for i := range want {
			want[i] = fmt.Sprintf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d,"progressToken":"p"}}, 0 answers`, i)
		}
		if !slices.Equal(c.progress, want) {
			t.Errorf("got %q\nwant %q", c.progress, want)
		}
	})
}

func TestProgressIsForwardedOnlyToCallsWithAToken(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		withoutToken, _ := k.send(request("1", ""), &peer.Call{})
		warnings, _ := k.send(request("2", `,"_meta":{"progressToken":0}`), &peer.Call{Token: "0"})
		for _, token := range []string{"1", "2", "0", `"p"`, "null", "{}", "77"} {
			k.remote.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":%s}}`, token)
		}
		for _, params := range []string{`{}`, `[]`, `{"progressToken":[2]}`, `{"progress":"x"}`} {
			k.remote.Sendf(`{"jsonrpc":"2.0","method":"notifications/progress","params":%s}`,
				params)
		}
		k.remote.Send(`{"jsonrpc":"2.0","method":"notifications/progress"}`)
		withoutToken.wantOpen(t)
		warnings.wantOpen(t)
		if len(withoutToken.progress) != 0 || len(warnings.progress) != 1 {
			t.Errorf("progress: %q, %q, want none and one", withoutToken.progress,
				warnings.progress)
		}
		if len(k.notifications) != 0 {
			t.Errorf("%d of them were passed to the Handler", len(k.notifications))
		}
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

func TestCancelNotifiesTheRemoteSideOnce(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		k.send(request("1", ""), &peer.Call{})
		c, pending := k.send(request(`"c"`, ""), &peer.Call{})
		k.remote.Next()
		k.remote.Next()
		pending.Cancel([]byte(`{"reason":"\u003cuser>", "requestId":"c","_meta":{"x":1}}`))
		pending.Cancel(nil)
		k.remote.Want(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"\u003cuser>", "requestId":2,"_meta":{"x":1}}}`)
		if _, err := c.wantOutcome(t); !errors.Is(err, peer.ErrCancelled) {
			t.Errorf("it ended with %v", err)
		}
		k.remote.SendResult("2", "{}")
		k.remote.SendError("2", `{"code":0,"message":"Request cancelled"}`)
		c.wantOutcome(t)
		k.remote.WantNothing()
	})
}

func TestCancelOfACallNotInFlightDoesNothing(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		never := &peer.Call{Handler: &recordingHandler{}}
		never.Cancel(nil)
		if never.ID() != "" {
			t.Errorf("a call that was not sent has the id %s", never.ID())
		}
		c, pending := k.send(request("1", ""), &peer.Call{})
		k.remote.Next()
		k.remote.SendResult("1", "{}")
		c.wantOutcome(t)
		pending.Cancel(nil)
		c.wantOutcome(t)
		k.remote.WantNothing()
	})
}

func TestMalformedInputWithAnIDFailsThatCall(t *testing.T) {
	inBubble(t, peer.Options{OnMalformed: func(*transport.MalformedError) {}},
		func(t *testing.T, k *testPeer) {
			other, _ := k.send(request("1", ""), &peer.Call{})
			c, _ := k.send(request("2", ""), &peer.Call{})
			k.remote.TakeAll()
			k.remote.Send(`{"jsonrpc":"2.0","id":2}`)
			_, err := c.wantOutcome(t)
			if _, ok := errors.AsType[*peer.BadResponseError](err); !ok {
				t.Errorf("it ended with %v", err)
			}
			k.remote.Send(`✓ server ready`)
			k.remote.WantNothing()
			other.wantOpen(t)
		})
}

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

func TestCallWaitsForTheResult(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		results := make(chan string, 2)
		call := func(ctx context.Context) {
			result, err := k.Call(ctx, "tools/list", []byte(`{"cursor":"x"}`))
			results <- fmt.Sprintf("%s, %v", result, err)
		}
		go call(t.Context())
		k.remote.Want(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`)
		k.remote.SendResult("1", `{"tools":[]}`)
		if got := <-results; got != `{"tools":[]}, <nil>` {
			t.Error(got)
		}
		go call(t.Context())
		k.remote.Next()
		k.remote.SendError("2", `{"code":-32601,"message":"no such"}`)
		if got := <-results; got != `, no such` {
			t.Error(got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go call(ctx)
		k.remote.Next()
		if got := <-results; got != `, context deadline exceeded` {
			t.Error(got)
		}
		k.remote.Want(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"context deadline exceeded","requestId":3}}`)
	})
}

// "The initialize request MUST NOT be cancelled by clients."
func TestInitializeIsNotCancelled(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Call(ctx, "initialize", []byte("{}")); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
		k.remote.WantRequest("initialize")
		k.remote.WantNothing()
	})
}

// A response, a cancellation, a timeout, the end of the connection, and progress occur at the same
// time.
func TestEachCallCompletesOnce(t *testing.T) {
	outcomes := make(map[string]int)
	for round := range 150 {
		inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
			const n = 16
			var all []*recordingHandler
			var pending []*peer.Call
			for i := range n {
				o := &peer.Call{Token: "0"}
				if (i+round)%3 != 0 {
					o.Timeout = time.Second
				}
				c, p := k.send(request("1", `,"_meta":{"progressToken":0}`), o)
				all, pending = append(all, c), append(pending, p)
			}
			at := func(do func(i int)) {
				go func() {
					time.Sleep(time.Second)
					for i := range n {
						do((i*7 + round) % n)
					}
				}()
			}
			at(func(i int) { k.remote.SendResult(wire.ID(fmt.Sprint(i+1)), "{}") })
			at(func(i int) { pending[i].Cancel(nil) })
			at(func(i int) {
				k.remote.Sendf(
					`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d}}`, i+1)
			})
			if round%2 == 0 {
				at(func(i int) {
					if i == round%n {
						k.remote.Exit("exit 1", "")
					}
				})
			}
			time.Sleep(time.Second)
			for _, c := range all {
				_, err := c.wantOutcome(t)
				switch {
				case err == nil:
					outcomes["answered"]++
				case errors.Is(err, peer.ErrTimeout):
					outcomes["timeout"]++
				case errors.Is(err, peer.ErrCancelled):
					outcomes["cancelled"]++
				default:
					outcomes["lost"]++
				}
			}
		})
	}
	t.Log(outcomes)
	if len(outcomes) < 3 {
		t.Errorf("not every outcome has occurred: %v", outcomes)
	}
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

// relatedToConn records the relatedTo of each message.
type relatedToConn struct {
	transport.Conn
	mu  sync.Mutex
	all []string
}

func (a *relatedToConn) Write(m wire.Message, about wire.ID) error {
	a.mu.Lock()
	a.all = append(a.all, m.Method()+" "+string(about))
	a.mu.Unlock()
	return a.Conn.Write(m, about)
}

// A cancellation is sent on the stream of the request to which the call is related, or, if there is
// none, on the stream of the call.
func TestACancellationTravelsOnTheStreamOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := mcptest.NewPeer(t, "remote side")
		noted := &relatedToConn{Conn: conn}
		p := peer.New(noted, &testPeer{}, peer.Options{})
		for _, about := range []wire.ID{"", `"theirs"`} {
			c := &peer.Call{Handler: &recordingHandler{}, RelatedTo: about}
			p.Send(request("1", ""), c)
			c.Cancel(nil)
		}
		want := []string{"tools/call ", "notifications/cancelled 1", `tools/call "theirs"`,
			`notifications/cancelled "theirs"`}
		if !slices.Equal(noted.all, want) {
			t.Errorf("wrote %q, want %q", noted.all, want)
		}
	})
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
