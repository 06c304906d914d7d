package gateway

import (
	"cmp"
	"slices"
	"time"
)

// A ClientTransport is the transport between the gateway and a client.
type ClientTransport string

// The transports of clients.
const (
	Stdio          ClientTransport = "stdio"
	StreamableHTTP ClientTransport = "streamable HTTP"
	HTTPSSE        ClientTransport = "HTTP+SSE"
)

// A ClientStatus is the state of a client at one moment: of a session, or of a stateless client,
// which are all modern requests with the same principal, profiles and client metadata.
type ClientStatus struct {
	ID        string          // session id, as in logs
	Stateless bool            // it has no session
	Name      string          // name/version; "" = it has not sent it
	Principal string          // see principal.Principal.Name; "" = without authentication
	Profiles  []string        // nil = none
	Transport ClientTransport // of a stateless client: that of its first request
	Revision  string          // protocol revision; "" = not negotiated yet
	Since     time.Time       // when it connected, or its first request arrived
	// when its last message arrived, or of a stateless client the last request that is no
	// server/discover
	LastRequest time.Time
	// requests without a response; of a stateless client, calls that have not ended
	InFlight int
}

// clientRequests are the times of the requests of a stateless client.
type clientRequests struct {
	first, last time.Time
	transport   ClientTransport // of the first request
}

// clientsOf implements Gateway.Clients.
func clientsOf(g *Gateway) (all []ClientStatus) {
	for _, s := range g.sessions.all() {
		h := s.lifecycle.negotiated.Load()
		if h == nil && s.servesModern.Load() {
			continue // its requests belong to stateless clients
		}
		a := s.peer.Activity()
		one := ClientStatus{ID: s.id, Principal: s.principal.Name(),
			Profiles: s.principal.Profiles(), Transport: s.transport, Since: a.Since,
			LastRequest: a.LastReceived, InFlight: s.peer.OpenRequests()}
		if h != nil {
			one.Name, one.Revision = h.Name, h.Revision.Date
		}
		all = append(all, one)
	}
	for _, sc := range g.statelessClients.all() {
		all = append(all, sc.status())
	}
	slices.SortFunc(all, func(x, y ClientStatus) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.ID, y.ID))
	})
	return all
}

func (sc *statelessClient) status() ClientStatus {
	s := ClientStatus{ID: sc.id, Stateless: true, Name: sc.name, Principal: sc.principal.Name(),
		Profiles: sc.principal.Profiles(), Revision: sc.meta.Revision}
	table := &sc.g.statelessClients
	table.mu.Lock()
	s.Since, s.LastRequest, s.Transport = sc.seen.first, sc.seen.last, sc.seen.transport
	table.mu.Unlock()
	sc.mu.Lock()
	s.InFlight = sc.resumable.Len()
	sc.mu.Unlock()
	s.InFlight += len(sc.completions.list())
	return s
}
