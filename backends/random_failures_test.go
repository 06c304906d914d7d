package backends_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A randomServers plays the servers of one backend, of either generation. Until it is calm, the
// servers randomly fail to start, crash, fail to list, refuse calls and are slow.
type randomServers struct {
	running sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	calm   bool
	modern bool // the servers that start from now on
	conns  map[transport.Conn]bool
}

func (s *randomServers) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// oneIn reports true one time in n, unless it is calm.
func (s *randomServers) oneIn(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n) == 0 && !s.calm
}

func (s *randomServers) dial(config.Backend) (transport.Conn, error) {
	if s.oneIn(6) {
		return nil, errors.New("no dial")
	}
	ours, theirs := transport.Pipe()
	s.mu.Lock()
	s.conns[theirs] = true
	modern := s.modern
	s.mu.Unlock()
	s.running.Go(func() { s.serve(theirs, modern) })
	return ours, nil
}

func (s *randomServers) serve(conn transport.Conn, modern bool) {
	defer conn.Close()
	for {
		m, _, err := conn.Read()
		if err != nil || s.oneIn(80) {
			return
		}
		if m.Kind() != wire.Request {
			continue
		}
		answer, wait := s.respond(m, modern), time.Duration(s.n(300))*time.Millisecond
		if s.oneIn(20) {
			wait = time.Duration(s.n(8)) * time.Second
		}
		s.running.Add(1)
		time.AfterFunc(wait, func() {
			defer s.running.Done()
			_ = conn.Write(answer, "") // the remote side may be closed
		})
	}
}

func (s *randomServers) respond(m wire.Message, modern bool) wire.Message {
	no := func(
		code int) wire.Message {
		return wire.NewErrorResponse(m.ID(), wire.Errorf(code, "no"))
	}
	answer := "{}"
	switch m.Method() {
	case "server/discover", "initialize":
		if modern != (m.Method() == "server/discover") {
			return no(wire.CodeMethodNotFound)
		}
		if answer = loggingServer; modern {
			answer = discoverWith(changeCapabilities)
		}
	case "subscriptions/listen":
		return wire.NewNotification("notifications/subscriptions/acknowledged", []byte("{}"))
	case "tools/call":
		if modern && s.oneIn(4) {
			return no(-32020)
		}
		answer = `{"resultType":"complete"}`
	case "tools/list", "resources/list", "resources/templates/list", "prompts/list":
		if s.oneIn(8) {
			return no(wire.CodeInternalError)
		}
		answer = `{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object"}}],"resources":[],"resourceTemplates":[],"prompts":[]}`
	}
	return wire.NewResult(m.ID(), []byte(answer))
}

// changeRandomly changes the configuration, or ends some servers, or ends all servers and changes
// their generation.
func (s *randomServers) changeRandomly(h *harness, c config.Backend, until time.Time) {
	for n := 0; time.Now().Before(until); n++ {
		time.Sleep(time.Duration(s.n(9000)) * time.Millisecond)
		if s.n(3) == 0 {
			<-h.startApply(change(withEnv(c, fmt.Sprint(n))))
			continue
		}
		all := s.n(2) == 0
		s.mu.Lock()
		s.modern = s.modern != all
		for conn := range s.conns {
			if all || s.random.IntN(2) == 0 {
				conn.Close()
				delete(s.conns, conn)
			}
		}
		s.mu.Unlock()
	}
}

// callRandomly plays a client that calls, subscribes and cancels, and sometimes is replaced by
// another client.
func (s *randomServers) callRandomly(h *harness, name string, made func(*callRecorder),
	until time.Time) {
	stateless := s.n(3) == 0
	session := name
	h.OpenSession(session, []byte(canSample), stateless)
	for n := 0; time.Now().Before(until); n++ {
		time.Sleep(time.Duration(s.n(400)) * time.Millisecond)
		switch {
		case s.oneIn(15):
			time.Sleep(time.Duration(s.n(6)) * time.Second)
		case s.oneIn(12):
			h.CloseSession(session)
			session = fmt.Sprint(name, n)
			h.OpenSession(session, []byte(canSample), stateless)
		}
		c := &callRecorder{}
		made(c)
		method := "tools/call"
		params := []byte(fmt.Sprintf(`{"name":"t","uri":"x:%d"}`, n%2))
		if k := s.n(10); k < 2 {
			method = []string{"resources/unsubscribe", "resources/subscribe"}[k]
		}
		p := h.SendCall("a", session, wire.NewRequest("7", method, params), c)
		if s.n(4) == 0 {
			time.Sleep(time.Duration(s.n(3)*50) * time.Millisecond)
			p.Cancel(nil)
		}
	}
	h.CloseSession(session)
}

// After random concurrent failures each call has ended once, no slot is in use, there are no
// subscriptions, and the backend is ready or idle.
func TestRandomFailuresLeaveNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	for seed := range uint64(12) { // twice each kind of backend, lazy and not
		s := &randomServers{random: rand.New(rand.NewPCG(seed, 0)),
			conns: make(map[transport.Conn]bool)}
		c := []config.Backend{perSessionBackend("a"), legacyBackends("a")[0],
			legacyBackends("a")[0]}[seed%3]
		if seed%3 == 1 {
			c.Sharing = "session"
		}
		c.Generation, c.Lazy, c.IdleStop = "", seed%2 == 0, 2*time.Second
		c.StartTimeout, c.CallTimeout = 20*time.Second, 5*time.Second
		c.MaxInFlight, c.QueueWait = 3, 4*time.Second
		o := backends.Options{Backends: []config.Backend{c}, Dial: s.dial, StartParallel: 2,
			StateDir: t.TempDir()}
		withHarness(t, o, func(t *testing.T, h *harness) {
			var mu sync.Mutex
			var calls []*callRecorder
			var working sync.WaitGroup
			until := time.Now().Add(3 * time.Minute)
			for i := range 6 {
				working.Go(func() {
					s.callRandomly(h, fmt.Sprint("s", i), func(c *callRecorder) {
						mu.Lock()
						defer mu.Unlock()
						calls = append(calls, c)
					}, until)
				})
			}
			working.Go(func() { s.changeRandomly(h, c, until) })
			working.Wait()
			s.mu.Lock()
			s.calm = true
			s.mu.Unlock()
			time.Sleep(6 * time.Minute) // a breaker may be open
			synctest.Wait()
			for _, c := range calls {
				if len(c.results) != 1 {
					t.Errorf("seed %d: a call ended with %q", seed, c.results)
				}
			}
			want := backends.Stopped
			if c.URL != "" {
				want = backends.Ready
			}
			h.wantState("a", want)
			h.wantNames("t")
			h.OpenSession("last", nil, false)
			for range c.MaxInFlight {
				one := h.callFor("last", "a")
				two := h.callFor("last", "a")
				three := h.callFor("last", "a")
				time.Sleep(3 * time.Second)
				one.wantResult(t)
				two.wantResult(t)
				three.wantResult(t)
			}
			h.stop()
			<-h.done
			s.running.Wait()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
