package backends_test

import (
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/wire"
)

// The generation of a server changes while it refuses calls because of their headers, and while
// there are subscriptions and cancellations: every call ends once, and no goroutine is left. The
// sessions have their own connections: behind a URL always, and on stdio because the single client
// declares different capabilities in each session.
func TestGenerationsCallsAndCancellationsRace(t *testing.T) {
	for round := range 80 {
		o := backends.Options{Backends: withUnknownGeneration(perSessionBackend("a"))}
		if o.SingleClient = round%4 >= 2; o.SingleClient {
			o.Backends = withUnknownGeneration(legacyBackends("a")...)
		}
		withHarness(t, o, func(t *testing.T, h *harness) {
			h.OpenSession("one", []byte(canSample), false)
			go func() {
				time.Sleep(250 * time.Millisecond)
				h.OpenSession("two", []byte(canElicit), true)
				time.Sleep(time.Second)
				h.CloseSession("two")
			}()
			var all [30]*callRecorder
			for i := range all {
				c := &callRecorder{}
				all[i] = c
				go func() {
					time.Sleep(time.Duration(i%5) * 100 * time.Millisecond)
					session := []string{"one", "two", ""}[(i+i/6)%3]
					m := wire.NewRequest("7", "tools/call", []byte(`{"name":"t"}`))
					if i%6 == 5 {
						m = wire.NewRequest("7", "resources/subscribe", []byte(`{"uri":"x:y"}`))
					} else if i%6 == 4 {
						time.Sleep(time.Duration(round%3) * 30 * time.Millisecond)
						m = wire.NewRequest("7", "resources/unsubscribe", []byte(`{"uri":"x:y"}`))
					}
					p := h.SendCall("a", session, m, c)
					if i%2 == 0 {
						time.Sleep(time.Duration(i%7) * 50 * time.Millisecond)
						p.Cancel(nil)
					}
				}()
			}
			stop := make(chan struct{})
			played := make(chan struct{})
			go func() {
				defer close(played)
				h.playServer(stop, round)
			}()
			time.Sleep(10 * time.Second)
			close(stop)
			<-played
			h.stop()
			<-h.done
			synctest.Wait()
			for i, c := range all {
				if len(c.results) != 1 {
					t.Errorf("round %d: call %d ended %d times: %q", round, i, len(c.results),
						c.results)
				}
			}
		})
	}
}

// playServer plays the server until stop is closed; its generation changes after every 20 steps of
// the loop, five times.
func (h *harness) playServer(stop chan struct{}, round int) {
	var peers []*mcptest.Peer
	modern, refused := round%2 == 0, 0
	for tick := 0; ; tick++ {
		select {
		case <-stop:
			return
		case p := <-h.processes("a"):
			peers = append(peers, p)
		case <-time.After(time.Duration(1+round%3) * 10 * time.Millisecond):
		}
		if tick%20 == 19 && tick < 100 {
			modern = !modern
			for _, p := range peers {
				p.Exit("exit 1", "")
			}
			peers = nil
		}
		for _, p := range peers {
			for _, line := range p.TakeAll() {
				m, _ := wire.Parse([]byte(line))
				if m.Kind() != wire.Request {
					continue
				}
				switch m.Method() {
				case "server/discover", "initialize":
					switch {
					case modern != (m.Method() == "server/discover"):
						p.SendError(m.ID(), `{"code":-32601,"message":"no"}`)
					case modern:
						p.SendResult(m.ID(), discoverWith(changeCapabilities))
					default:
						p.SendResult(m.ID(), loggingServer)
					}
				case "subscriptions/listen":
					if refused++; refused%2 == 0 {
						p.SendError(m.ID(), `{"code":-32603,"message":"no"}`)
					} else {
						p.Sendf(
							`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
					}
				case "tools/call":
					if refused++; modern && refused%2 == 0 {
						p.SendError(m.ID(), `{"code":-32020,"message":"no"}`)
					} else {
						p.SendResult(m.ID(), "{}")
					}
				default:
					p.SendResult(m.ID(), `{"tools":[],"resources":[],"resourceTemplates":[]}`)
				}
			}
		}
	}
}
