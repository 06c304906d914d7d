package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/reload"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func serveCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP on stdin and stdout (the default), or over HTTP",
		Long: `serve serves MCP on stdin and stdout until stdin ends or it receives SIGTERM
or SIGINT. The log goes to stderr. Backends, except lazy ones with a stored catalog, are
started by the first initialize request or, from clients of 2026-07-28, by the first valid
request other than server/discover. They are stopped with the gateway.

With --listen (or listen: in the file) it serves any number of clients over HTTP instead, at
http://ADDR/mcp and, for clients of the older HTTP+SSE transport, at http://ADDR/sse. In
this mode the backends are started at once. Add --stdio to serve stdin and stdout as well;
the gateway then ends when the client on stdin disconnects.

The configuration file is reloaded when it changes and on SIGHUP: new and changed backends
are started, unchanged backends keep running, and clients are notified. A file with errors
changes nothing; the errors are logged. Changes of keys such as listen, which need a restart,
are only logged. SIGHUP also retries failed backends at once. (If stdin is a terminal, SIGHUP
ends the gateway.) "gateway check --diff" shows the changes that a reload would make.

    gateway serve --listen 127.0.0.1:7420
    claude mcp add -s user --transport http gateway http://127.0.0.1:7420/mcp`,
		Args: noArgs,
		RunE: c.serve,
	}
	c.serveFlags(cmd)
	return cmd
}

// serveFlags adds the flags of serve to a command.
func (c *cli) serveFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.listen, "listen", "",
		"serve HTTP at `ADDR`, e.g. 127.0.0.1:7420, instead of stdin and stdout")
	cmd.Flags().BoolVar(&c.alsoStdio, "stdio", false,
		"with --listen: serve stdin and stdout as well")
}

func (c *cli) serve(cmd *cobra.Command, _ []string) error {
	sighup, release := c.sighup.Subscribe(c.in)
	defer release()
	a, err := c.open(runMode{})
	if err != nil {
		return err
	}
	c.secondSignal.set(a.gateway.EndGracePeriods)
	if a.Config.Listen == "" {
		a.logStdioStart(c.in)
		c.serving = true
		return a.run(cmd.Context(), func(ctx context.Context) error {
			defer a.logSignal(ctx)()
			return c.runReloading(ctx, a, nil, sighup, func(ctx context.Context) error {
				return c.serveStdio(ctx, a)
			})
		})
	}
	ln, server, err := a.listen()
	if err != nil {
		a.close()
		return err
	}
	url := a.endpointURL(ln.Addr())
	a.logHTTPStart(url, c.err)
	c.serving = true
	return a.run(cmd.Context(), func(ctx context.Context) error {
		defer a.logSignal(ctx)()
		a.backends.Start()
		if !c.alsoStdio {
			var disconnected context.CancelFunc
			ctx, disconnected = context.WithCancel(ctx)
			defer disconnected()
			defer c.rejectStdioClient(a, url, disconnected)()
		}
		return c.runReloading(ctx, a, server, sighup, func(ctx context.Context) error {
			return c.serveHTTP(ctx, a, server, ln)
		})
	})
}

// serveHTTP serves HTTP and, with --stdio, stdin and stdout as well. It returns when ctx is done,
// when the server fails or, with --stdio, when the client on stdin disconnects.
func (c *cli) serveHTTP(
	ctx context.Context, a *app, server *httpserver.Server, ln net.Listener,
) error {
	both, end := context.WithCancel(ctx)
	defer end()
	var stdio sync.WaitGroup
	var failed error
	if c.alsoStdio {
		stdio.Go(func() {
			defer end() // the client that has started the gateway has disconnected
			failed = c.serveStdio(both, a)
		})
	}
	err := server.Run(both, ln)
	end()
	stdio.Wait()
	return errors.Join(failed, err)
}

func (c *cli) serveStdio(ctx context.Context, a *app) error {
	conn := transport.Stdio(c.in, c.out, int(a.Config.Limits.Message))
	return a.gateway.Serve(ctx, "", "", &stdinConn{Conn: conn, a: a})
}

// A stdinConn is the connection to the client on stdin and stdout. It logs the end of stdin,
// because the gateway then stops, which is unexpected if there is no client.
type stdinConn struct {
	transport.Conn
	a        *app
	received bool // a message was received; used only by Read
}

func (s *stdinConn) Read() (wire.Message, wire.ID, error) {
	m, about, err := s.Conn.Read()
	switch {
	case err != io.EOF:
		s.received = true
	case s.received || s.a.Config.Listen != "":
		s.a.log.Info("stdin ended: stopping")
	default:
		s.a.log.Info("stdin ended without a message: stopping",
			"text", "to run as a service use --listen")
	}
	return m, about, err
}

// logSignal logs the signal that cancels ctx, if a signal does so before stop is called.
func (a *app) logSignal(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(done)
		if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
			a.log.Info("signal received: stopping", "text", sig.Error())
		}
	})
	return func() {
		if !unregister() {
			<-done
		}
	}
}

// listen opens the listener and returns the HTTP server for it. It returns an error if the tokens
// or the certificate cannot be read, or if the gateway cannot listen at the address.
func (a *app) listen() (net.Listener, *httpserver.Server, error) {
	c := a.Config
	tokens, err := a.authTokens(a.Loaded, c)
	if err != nil {
		return nil, nil, err
	}
	a.mask.SetSecrets(append(config.Secrets(c), tokens...)...)
	o := httpserver.Options{
		OpenSession: func(
			v httpserver.SessionInfo, out transport.Writer,
		) httpserver.SessionHandler {
			return a.gateway.Open(v.ID, v.Principal, out)
		},
		ServeStateless: func(ctx context.Context, v httpserver.SessionInfo, conn transport.Conn) {
			_ = a.gateway.Serve(ctx, v.ID, v.Principal, conn) // logged by the gateway
		},
		ValidateHeaders: a.gateway.ValidateHeaders,
		OnRejected:      a.gateway.RecordRejected,
		PendingBackends: a.unansweredBackends,
		Via:             a.via,
		MessageLimit:    int(c.Limits.Message),
		MaxSessions:     c.Limits.Sessions,
		IdleTimeout:     c.Limits.SessionIdle,
		RetainLimit:     int(c.Limits.Events),
		BacklogLimit:    c.Limits.Outbox,
		Tokens:          tokens,
		Origins:         c.Origins,
		Hosts:           c.Hosts,
		Loopback:        c.Loopback(),
		Log:             a.log,
	}
	pair, err := reload.LoadCertificate(a.Loaded, c.TLS)
	if err != nil {
		return nil, nil, err
	}
	a.certificate.Store(pair)
	o.TLS = a.certificate.TLSConfig()
	ln, err := net.Listen("tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, nil, hintedError{
			fmt.Errorf("listen: %s is in use", c.Listen),
			"a gateway may be running there already: configure its URL in your client, " +
				"or choose another port with --listen",
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	return ln, httpserver.New(o), nil
}

// unansweredBackends returns the names of the backends that have neither listed their tools nor
// failed.
func (a *app) unansweredBackends() (names []string) {
	for _, s := range enabled(a.backends.Status()) {
		if !s.Settled {
			names = append(names, s.Name)
		}
	}
	return names
}

// logStdioStart logs that the gateway serves stdin and stdout.
func (a *app) logStdioStart(in *os.File) {
	if a.Source == "" {
		a.log.Info(noFileMessage + laterFileMessage)
	} else {
		a.log.Info("serving on stdin and stdout", "file", a.Source, "version", version)
	}
	if isTerminal(in) {
		a.log.Info("stdin is a terminal, not an MCP client",
			"text", "to add the gateway to a client: claude mcp add -s user gateway -- gateway")
	}
}

// logHTTPStart logs the URL of the gateway, and the command that adds the gateway to Claude Code.
// Without a token it also logs who has access. For the generated token it prints the command to
// stderr if stderr is a terminal; otherwise the logged command reads the token from its file.
func (a *app) logHTTPStart(url string, stderr *os.File) {
	if a.Source == "" {
		a.log.Info(noFileMessage + laterFileMessage)
	}
	a.log.Info("serving at "+url, "file", a.Source, "version", version)
	use, token := "to use it in Claude Code", ""
	switch auth := a.Config.Auth; {
	case len(auth.Tokens) == 0:
		a.log.Info("no token configured: access for every user and program of this machine",
			"text", "to create a token set auth: { tokens: [auto] } in the configuration")
	case auth.Tokens[0] == config.AutoToken && isTerminal(stderr):
		fmt.Fprintln(stderr, "to use it: "+claudeCommand(url, a.autoToken))
		return
	case auth.Tokens[0] == config.AutoToken:
		// The log must not contain the token, because logs may be stored.
		token = "$(cat " + shellWord(autoTokenPath(a.Config)) + ")"
	default:
		if auth.TokenVariable == "" {
			use += ", with one of auth.tokens in GATEWAY_TOKEN"
		}
		token = "$" + cmp.Or(auth.TokenVariable, "GATEWAY_TOKEN")
	}
	a.log.Info(use, "text", claudeCommand(url, token))
}

// claudeCommand returns the command that adds the gateway to Claude Code. token may be "". The
// command contains no " or \, so that it can be copied from the log.
func claudeCommand(url, token string) string {
	command := "claude mcp add -s user --transport http gateway " + url
	if token != "" {
		command += " -H 'Authorization: Bearer '" + token
	}
	return command
}

// endpointURL returns the URL for clients. Its host is the host in listen, or the name of this
// machine if the gateway listens at all addresses.
func (a *app) endpointURL(addr net.Addr) string {
	scheme, host := "http", addr.String()
	if a.Config.TLS.Cert != "" {
		scheme = "https"
	}
	written, _, _ := net.SplitHostPort(a.Config.Listen)
	_, notIP := netip.ParseAddr(written)
	if ip, ok := addr.(*net.TCPAddr); ok && written != "" && notIP != nil {
		host = net.JoinHostPort(written, strconv.Itoa(ip.Port))
	} else if ok && ip.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		host = net.JoinHostPort(name, strconv.Itoa(ip.Port))
	}
	return scheme + "://" + host + "/mcp"
}

// rejectStdioClient responds with errors to a client that has started the gateway with pipes
// although the configuration has listen. If this client sends a request and disconnects,
// rejectStdioClient calls disconnected, because a gateway that a client has started must not
// outlive the client and keep the port.
func (c *cli) rejectStdioClient(a *app, url string, disconnected func()) (end func()) {
	var rejected, ended atomic.Bool
	done, stop := c.serveErrors(errorResponder{
		"This gateway serves at " + url + " only: configure that URL, or start it with --stdio",
		func(method string) {
			rejected.Store(true)
			a.log.Warn("client on stdin rejected", "method", method,
				"text", "to serve it, start the gateway with --stdio")
		},
	}, int(a.Config.Limits.Message))
	go func() {
		if <-done; rejected.Load() && !ended.Load() {
			a.log.Info("client on stdin disconnected: stopping")
			disconnected()
		}
	}()
	return func() {
		ended.Store(true)
		stop()
	}
}
