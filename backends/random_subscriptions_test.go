package backends_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// subscribedServers plays the servers of a backend, whose generation changes now and then. It
// responds after random times.
type subscribedServers struct {
	running sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	modern bool // generation of the next server
	// the URIs to which each server is subscribed → id of the listen, "" for legacy
	conns map[transport.Conn]map[string]wire.ID
}

func (s *subscribedServers) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *subscribedServers) dial(config.Backend) (transport.Conn, error) {
	ours, theirs := transport.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[theirs] = make(map[string]wire.ID)
	modern := s.modern
	s.running.Go(func() {
		s.serve(theirs, modern)
		s.mu.Lock()
		delete(s.conns, theirs)
		s.mu.Unlock()
		theirs.Close()
	})
	return ours, nil
}

// fail ends some of the servers, and changes the generation of the next ones.
func (s *subscribedServers) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modern = !s.modern
	all := s.random.IntN(2) == 0
	for conn := range s.conns {
		if all || s.random.IntN(2) == 0 {
			conn.Close()
			delete(s.conns, conn)
		}
	}
}

// subscribe subscribes a server to a URI (or ends that), unless the server has ended.
func (s *subscribedServers) subscribe(conn transport.Conn, uri string, id wire.ID, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !on {
		delete(s.conns[conn], uri)
	} else if s.conns[conn] != nil {
		s.conns[conn][uri] = id
	}
}

// serve plays one server until its connection ends.
func (s *subscribedServers) serve(conn transport.Conn, modern bool) {
	var late sync.WaitGroup
	defer late.Wait()
	send := func(m wire.Message) {
		late.Add(1)
		time.AfterFunc(time.Duration(s.n(200))*time.Millisecond, func() {
			defer late.Done()
			_ = conn.Write(m, "")
		})
	}
	listens := make(map[wire.ID][]string) // id → URIs
	for {
		m, _, err := conn.Read()
		if err != nil {
			return
		}
		params := m.Part(wire.PartParams)
		uri, _ := wire.Lookup(params, "uri")
		result := `{"resultType":"complete","resources":[],"resourceTemplates":[],` +
			`"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`
		switch method := m.Method(); method {
		case "notifications/cancelled":
			id := m.RequestID()
			if _, open := listens[id]; !open {
				continue
			}
			for _, uri := range listens[id] {
				s.subscribe(conn, uri, "", false)
			}
			delete(listens, id)
			for other, uris := range listens { // over HTTP there may be another listen
				for _, uri := range uris {
					s.subscribe(conn, uri, other, true)
				}
			}
			send(wire.NewResult(id, []byte(`{"resultType":"complete"}`)))
			continue
		case "server/discover", "initialize":
			result = loggingServer
			if modern {
				result = discoverWith(changeCapabilities)
			}
			if modern != (method == "server/discover") {
				send(wire.NewErrorResponse(m.ID(), wire.Errorf(wire.CodeMethodNotFound, "no")))
				continue
			}
		case "subscriptions/listen":
			list, _ := wire.Lookup(params, "notifications", "resourceSubscriptions")
			var uris []string
			wire.EachElement(list, func(uri []byte) bool {
				uris = append(uris, wire.Unquote(uri))
				s.subscribe(conn, wire.Unquote(uri), m.ID(), true)
				return true
			})
			listens[m.ID()] = uris
			send(wire.NewNotification("notifications/subscriptions/acknowledged",
				wire.Encode(map[string]any{"_meta": subscriptionMeta(m.ID()),
					"notifications": map[string]any{"resourceSubscriptions": uris}})))
			continue
		case "resources/subscribe", "resources/unsubscribe":
			s.subscribe(conn, wire.Unquote(uri), "", method == "resources/subscribe")
			result = "{}"
		}
		if m.Kind() == wire.Request {
			send(wire.NewResult(m.ID(), []byte(result)))
		}
	}
}

func subscriptionMeta(id wire.ID) map[string]any {
	return map[string]any{"io.modelcontextprotocol/subscriptionId": id}
}

// announce sends an update of a resource from each server that is subscribed to it.
func (s *subscribedServers) announce(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, subscribed := range s.conns {
		id, is := subscribed[uri]
		if !is {
			continue
		}
		params := map[string]any{"uri": uri}
		if id != "" {
			params["_meta"] = subscriptionMeta(id)
		}
		_ = conn.Write(wire.NewNotification("notifications/resources/updated",
			wire.Encode(params)), "")
	}
}

// Sessions subscribe and unsubscribe at random times, while servers end, change their generation,
// and are replaced by Apply. In the end each session receives the updates of the resources to which
// it is subscribed.
func TestRandomSubscriptions(t *testing.T) {
	for seed := range uint64(12) { // twice each kind of backend and server
		s := &subscribedServers{random: rand.New(rand.NewPCG(seed, 1)), modern: seed%4 >= 2,
			conns: make(map[transport.Conn]map[string]wire.ID)}
		c := perSessionBackend("a")
		if seed%3 > 0 {
			c = legacyBackends("a")[0]
		}
		if seed%3 == 1 {
			c.Sharing = "session"
		}
		c.Generation, c.StartTimeout, c.CallTimeout = "", 20*time.Second, 10*time.Second
		c.IdleStop = 2 * time.Second
		o := backends.Options{Backends: []config.Backend{c}, Dial: s.dial}
		withHarness(t, o, func(t *testing.T, h *harness) {
			subscribed := h.subscribeAtRandom(s, c)
			time.Sleep(8 * time.Minute)
			for session, uris := range subscribed {
				for uri := range uris {
					h.clients.take()
					s.announce(uri)
					want := session + " notified by a: notifications/resources/updated"
					if !slices.Contains(h.clients.take(), want) {
						t.Errorf("seed %d (URL %q, sharing %q): %s gets no updates of %s", seed,
							c.URL, c.Sharing, session, uri)
					}
				}
			}
			h.stop()
			<-h.done
			s.running.Wait()
		})
	}
}

// subscribeAtRandom lets four sessions subscribe and unsubscribe for two minutes, while servers
// fail. It returns the subscriptions: session → URIs.
func (h *harness) subscribeAtRandom(s *subscribedServers,
	c config.Backend) map[string]map[string]bool {
	until := time.Now().Add(2 * time.Minute)
	subscribed := make(map[string]map[string]bool)
	var working sync.WaitGroup
	for i := range 4 {
		session, mine := fmt.Sprint("s", i), make(map[string]bool)
		subscribed[session] = mine
		h.OpenSession(session, nil, i == 3)
		working.Go(func() {
			for time.Now().Before(until) {
				time.Sleep(time.Duration(s.n(800)) * time.Millisecond)
				if s.n(4) == 0 {
					h.callFor(session, "a")
					continue
				}
				uri, on := fmt.Sprint("x:", s.n(3)), s.n(2) == 0
				call := h.subscribe(session, "a", uri, on)
				for call.outcome() == "" {
					time.Sleep(5 * time.Millisecond)
				}
				if !on {
					delete(mine, uri)
				} else if strings.Contains(call.outcome(), `"result"`) {
					mine[uri] = true
				}
			}
		})
	}
	working.Go(func() {
		for n := 0; time.Now().Before(until); n++ {
			time.Sleep(time.Duration(s.n(15_000)) * time.Millisecond)
			if s.n(3) == 0 {
				<-h.startApply(change(withEnv(c, fmt.Sprint(n))))
			} else {
				s.fail()
			}
		}
	})
	working.Wait()
	return subscribed
}

// take waits until all goroutines are blocked, and removes and returns the messages.
func (cr *clientRecorder) take() []string {
	synctest.Wait()
	cr.mu.Lock()
	defer cr.mu.Unlock()
	all := cr.messages
	cr.messages = nil
	return all
}
