package main

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/loginpage"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
)

// loginPages are the pages at which users of clients log in to backends while the gateway serves.
// The HTTP server of the gateway serves them; a gateway without one listens on this machine, from
// the first page on.
type loginPages struct {
	*loginpage.StartPages
	onSecret func(string) // is called with the id of each page

	serving sync.WaitGroup // of the servers

	mu      sync.Mutex
	url     string // of the HTTP server, without a path; "" = none
	servers map[int]*loginServer
	closed  bool
}

// A loginServer serves pages at a port of this machine.
type loginServer struct {
	http.Server
	opened chan struct{} // closed when the server listens, or when err is set
	url    string
	err    error // the server does not listen
}

func newLoginPages(mask *logging.Mask) *loginPages {
	p := &loginPages{servers: make(map[int]*loginServer),
		onSecret: func(id string) { mask.AddToken(pageOwner, id) }}
	p.StartPages = loginpage.NewStartPages(p.base, mask.String)
	return p
}

// setURL sets the URL of the HTTP server, before any page is opened.
func (p *loginPages) setURL(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.url = url
}

// base returns the URL under which browsers reach the pages.
func (p *loginPages) base(port int) (string, error) {
	p.mu.Lock()
	url, server := p.url, p.servers[port]
	isNew := url == "" && server == nil && !p.closed
	if isNew {
		server = &loginServer{opened: make(chan struct{})}
		p.servers[port] = server
	}
	p.mu.Unlock()
	switch {
	case url != "":
		return url, nil
	case server == nil:
		return "", http.ErrServerClosed
	case isNew:
		p.openServer(server, port)
	}
	<-server.opened
	return server.url, server.err
}

// openServer lets a server listen at a port of this machine.
func (p *loginPages) openServer(server *loginServer, port int) {
	defer close(server.opened)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		delete(p.servers, port) // the next page tries again
		server.err = err
		return
	case p.closed:
		l.Close()
		server.err = http.ErrServerClosed
		return
	}
	server.url = "http://" + l.Addr().String()
	server.Handler = localOnly(l.Addr().String(), p.StartPages)
	server.ReadHeaderTimeout, server.ReadTimeout = 10*time.Second, 10*time.Second
	server.WriteTimeout, server.IdleTimeout = time.Minute, time.Minute
	server.MaxHeaderBytes = 32 << 10
	p.serving.Go(func() { _ = server.Serve(l) })
}

// localOnly rejects requests for another host, such as those of a page whose name was rebound to
// this machine.
func localOnly(host string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host {
			loginpage.Write(w, http.StatusForbidden, "Not allowed",
				"The request names another host.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// close ends the listeners. A page that is being written is completed, within a second.
func (p *loginPages) close() {
	p.mu.Lock()
	p.closed = true
	servers := p.servers
	p.servers = nil
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, server := range servers {
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}
	p.serving.Wait()
}

// openPage implements LoginPage of [backends.Options].
func (p *loginPages) openPage(backend, session string, client *principal.Principal,
	login *oauthclient.Authorization,
) (url string, done <-chan struct{}, err error) {
	request := loginpage.LoginRequest{Backend: backend, Client: session, Login: login,
		RedirectPort: login.RedirectPort}
	if login.Principal != "" { // not that of the gateway
		request.For = cmp.Or(client.Name(), "this client")
	}
	url, done, err = p.Open(request)
	if _, id, ok := strings.Cut(url, loginpage.StartPath); ok {
		p.onSecret(id)
	}
	return url, done, err
}

// complete implements CompleteLogin of [backends.Options].
func (p *loginPages) complete(login *oauthclient.Authorization) { p.Complete(login) }

// publicURL returns the URL of the HTTP server for browsers, without a path: auth.public_url, or
// else the one that clients use.
func publicURL(c *config.Config, endpoint string) string {
	if c.Auth.PublicURL != "" {
		return strings.TrimSuffix(c.Auth.PublicURL, "/")
	}
	return strings.TrimSuffix(endpoint, "/mcp")
}
