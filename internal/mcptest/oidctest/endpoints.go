package oidctest

import (
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// An Endpoint is an endpoint of a Provider.
type Endpoint string

// The endpoints of a Provider.
const (
	OAuthMetadata         Endpoint = "oauth-authorization-server" // RFC 8414
	OpenIDMetadata        Endpoint = "openid-configuration"       // at its three URLs
	KeysEndpoint          Endpoint = "keys"
	AuthorizationEndpoint Endpoint = "authorize"
	TokenEndpoint         Endpoint = "token"
	RevocationEndpoint    Endpoint = "revoke"
	IntrospectionEndpoint Endpoint = "introspect"
	RegistrationEndpoint  Endpoint = "register"
)

const (
	wellKnownOAuth  = "/.well-known/oauth-authorization-server"
	wellKnownOpenID = "/.well-known/openid-configuration"
)

// endpointPaths has the paths of the endpoints below the issuer. Those of the library are its
// defaults.
var endpointPaths = map[Endpoint]string{
	KeysEndpoint:          "/keys",
	AuthorizationEndpoint: "/authorize",
	TokenEndpoint:         "/oauth/token",
	RevocationEndpoint:    "/revoke",
	IntrospectionEndpoint: "/oauth/introspect",
	RegistrationEndpoint:  "/register",
}

// A Request is a recorded request to an endpoint.
type Request struct {
	Method   string
	ClientID string     // of an OAuth client, as it identified itself
	Auth     string     // its authentication: client_secret_basic, client_secret_post or none
	Form     url.Values // query and form; empty for a registration
	Body     []byte     // of a registration
}

// A Fault makes requests to an endpoint fail. The delay comes first. A zero Fault is none.
type Fault struct {
	Delay time.Duration
	// Hang never answers. The end of the fault closes the connection.
	Hang bool
	// Status answers with this status, and with Header and Body; 0 = the request is processed.
	Status int
	Header http.Header
	Body   string
	// Endless repeats Body, which must not be empty, without end.
	Endless bool
	// Times is the number of requests that fail; 0 = all.
	Times int
}

// A recorder has what tests may ask about the requests and secrets of a provider, and the faults.
type recorder struct {
	mu       sync.Mutex
	requests map[Endpoint][]Request
	secrets  map[string]bool
	faults   map[Endpoint]*Fault
	cleared  chan struct{} // closed when the current faults end
}

func newRecorder() *recorder {
	return &recorder{
		requests: make(map[Endpoint][]Request), secrets: make(map[string]bool),
		faults: make(map[Endpoint]*Fault), cleared: make(chan struct{}),
	}
}

// add records a request. It returns its fault, and a channel that is closed when the fault ends.
func (r *recorder) add(e Endpoint, req Request) (Fault, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests[e] = append(r.requests[e], req)
	f := r.faults[e]
	if f == nil {
		return Fault{}, r.cleared
	}
	now := *f
	if f.Times > 0 {
		if f.Times--; f.Times == 0 {
			delete(r.faults, e)
		}
	}
	return now, r.cleared
}

func (r *recorder) counts() map[Endpoint]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[Endpoint]int)
	for e, list := range r.requests {
		counts[e] = len(list)
	}
	return counts
}

func (r *recorder) list(e Endpoint) []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests[e])
}

func (r *recorder) addSecret(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if s != "" {
			r.secrets[s] = true
		}
	}
}

func (r *recorder) secretList() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]string, 0, len(r.secrets))
	for s := range r.secrets {
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

func (r *recorder) setFault(e Endpoint, f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[e] = &f
}

func (r *recorder) clearFaults() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.faults)
	close(r.cleared)
	r.cleared = make(chan struct{})
}

// close ends blocked requests for good.
func (r *recorder) close() { r.clearFaults() }

// apply makes a request fail, until cleared is closed. It returns false if the request is to be
// processed.
func (f Fault) apply(w http.ResponseWriter, req *http.Request, cleared <-chan struct{}) bool {
	wait := func(c <-chan time.Time) {
		select {
		case <-c:
		case <-cleared:
		case <-req.Context().Done():
		}
	}
	if f.Delay > 0 {
		wait(time.After(f.Delay))
	}
	if f.Hang {
		wait(nil)
		panic(http.ErrAbortHandler) // closes the connection
	}
	if f.Status == 0 {
		return false
	}
	for name, values := range f.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.Status)
	for {
		if _, err := w.Write([]byte(f.Body)); err != nil || !f.Endless {
			return true
		}
		select {
		case <-cleared:
			return true
		default:
		}
	}
}
