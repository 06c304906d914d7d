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
		Long: `serve speaks MCP on stdin and stdout until stdin ends or it gets SIGTERM or SIGINT. Logs
go to stderr. The backends are started when a client initializes, or asks for anything but
server/discover, and ended with the gateway.

With --listen (or listen: in the file) it serves any number of clients over HTTP instead, at
http://ADDR/mcp, and at http://ADDR/sse those that know the older transport only; the
backends are started at once. --stdio asks for both: then all ends when the client on stdin
and stdout is gone.

When the configuration file changes, and on SIGHUP, it is loaded anew: backends that are new
or other are started, those that are the same keep running, and clients are told what there
is now. A file that is wrong changes nothing; the log says what is wrong. The log names,
too, what needs a restart, as listen does. SIGHUP also has backends that have failed be tried
at once. (Where stdin is a terminal SIGHUP ends the gateway.)
"gateway check --diff" says what would change.

    gateway serve --listen 127.0.0.1:7420
    claude mcp add -s user --transport http gateway http://127.0.0.1:7420/mcp`,
		Args: noArgs,
		RunE: c.serve,
	}
	c.serveFlags(cmd)
	return cmd
}

// serveFlags gives a command the flags of serve.
func (c *cli) serveFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.listen, "listen", "", "serve HTTP at `ADDR`, e.g. 127.0.0.1:7420, instead of stdin and stdout")
	cmd.Flags().BoolVar(&c.alsoStdio, "stdio", false, "serve stdin and stdout as well, when it listens")
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
			return c.runReloading(ctx, a, nil, sighup, func(ctx context.Context) error { return c.serveStdio(ctx, a) })
		})
	}
	ln, d, err := a.listen()
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
			var hungUp context.CancelFunc
			ctx, hungUp = context.WithCancel(ctx)
			defer hungUp()
			defer c.rejectStdioClient(a, url, hungUp)()
		}
		return c.runReloading(ctx, a, d, sighup, func(ctx context.Context) error { return c.serveHTTP(ctx, a, d, ln) })
	})
}

// serveHTTP serves what comes through the door, and stdin and stdout as well if that was asked for.
func (c *cli) serveHTTP(ctx context.Context, a *app, d *httpserver.Server, ln net.Listener) error {
	both, end := context.WithCancel(ctx)
	defer end()
	var stdio sync.WaitGroup
	var failed error
	if c.alsoStdio {
		stdio.Go(func() {
			defer end() // who started us on its pipes is gone
			failed = c.serveStdio(both, a)
		})
	}
	err := d.Run(both, ln)
	end()
	stdio.Wait()
	return errors.Join(failed, err)
}

func (c *cli) serveStdio(ctx context.Context, a *app) error {
	conn := transport.Stdio(c.in, c.out, int(a.Config.Limits.Message))
	return a.gateway.Serve(ctx, "", "", &stdinConn{Conn: conn, a: a})
}

// stdinConn is the Conn to a client at our pipes. The log says when it has sent its last: all ends
// then, which surprises who has started us where there is no client.
type stdinConn struct {
	transport.Conn
	a        *app
	received bool // something; the reader's own
}

func (s *stdinConn) Read() (wire.Message, wire.ID, error) {
	m, about, err := s.Conn.Read()
	switch {
	case err != io.EOF:
		s.received = true
	case s.received || s.a.Config.Listen != "":
		s.a.log.Info("stdin has ended: stopping")
	default:
		s.a.log.Info("stdin has ended: stopping; to run as a service use --listen")
	}
	return m, about, err
}

// logSignal logs the signal that ends ctx, if one does before said is called.
func (a *app) logSignal(ctx context.Context) (said func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
			a.log.Info(sig.Error() + ": stopping")
		}
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// listen opens the HTTP door.
func (a *app) listen() (net.Listener, *httpserver.Server, error) {
	c := a.Config
	tokens, err := a.authTokens(a.Loaded, c)
	if err != nil {
		return nil, nil, err
	}
	a.mask.SetSecrets(append(config.Secrets(c), tokens...)...)
	o := httpserver.Options{
		OpenSession: func(v httpserver.SessionInfo, out transport.Writer) httpserver.SessionHandler {
			return a.gateway.Open(v.ID, v.Principal, out)
		},
		ServeStateless: func(ctx context.Context, v httpserver.SessionInfo, conn transport.Conn) {
			_ = a.gateway.Serve(ctx, v.ID, v.Principal, conn) // how it ended is in the log
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
		return nil, nil, hintedError{fmt.Errorf("listen: %s is in use", c.Listen),
			"a gateway may be running there already: configure its URL in your client, or choose another port with --listen"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	return ln, httpserver.New(o), nil
}

// unansweredBackends names the backends that have not answered yet, and may still.
func (a *app) unansweredBackends() (names []string) {
	for _, s := range enabled(a.backends.Status()) {
		if !s.Settled {
			names = append(names, s.Name)
		}
	}
	return names
}

// logStdioStart tells a person what to expect.
func (a *app) logStdioStart(in *os.File) {
	if a.Source == "" {
		a.log.Info(noFileMessage + laterFileMessage)
	} else {
		a.log.Info("serving on stdin and stdout", "file", a.Source, "version", version)
	}
	if isTerminal(in) {
		a.log.Info("stdin is a terminal, but it is a client that should be there: claude mcp add -s user gateway -- gateway")
	}
}

// logHTTPStart is greet for who listens.
func (a *app) logHTTPStart(url string, stderr *os.File) {
	if a.Source == "" {
		a.log.Info(noFileMessage + laterFileMessage)
	}
	a.log.Info("serving at "+url, "file", a.Source, "version", version)
	use, token := "to use it", ""
	switch auth := a.Config.Auth; {
	case len(auth.Tokens) == 0:
		a.log.Info("there is no token: every user and program of this machine can call the gateway; " +
			"to make one set auth: { tokens: [auto] } in the configuration")
	case auth.Tokens[0] == config.AutoToken && isTerminal(stderr):
		fmt.Fprintln(stderr, "to use it: "+claudeCommand(url, a.autoToken))
		return
	case auth.Tokens[0] == config.AutoToken:
		// A log is kept, and the token is not for it.
		token = "$(cat " + shellWord(autoTokenPath(a.Config)) + ")"
	default:
		if auth.TokenVariable == "" {
			use += ", with one of auth.tokens in GATEWAY_TOKEN"
		}
		token = "$" + cmp.Or(auth.TokenVariable, "GATEWAY_TOKEN")
	}
	a.log.Info(use + ": " + claudeCommand(url, token))
}

// claudeCommand returns the command that makes Claude Code use the gateway, with a token if that is not
// "". There is no " or \ in it, so that it can be pasted as the log has it.
func claudeCommand(url, token string) string {
	command := "claude mcp add -s user --transport http gateway " + url
	if token != "" {
		command += " -H 'Authorization: Bearer '" + token
	}
	return command
}

// endpointURL is where clients find us: by the name that listen has, or by our own if we listen at all of our addresses.
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

// rejectStdioClient answers a client that has started us on its pipes though we were told to
// listen. It calls hungUp when such a client has asked something and then closed its end: a
// gateway that a client has started must not outlive it and keep the port.
func (c *cli) rejectStdioClient(a *app, url string, hungUp func()) (end func()) {
	var asked, over atomic.Bool
	gone, leave := c.serveErrors(errorResponder{
		"This gateway serves at " + url + " alone: configure that, or start it with --stdio",
		func(method string) {
			asked.Store(true)
			a.log.Warn("a client speaks on stdin, where nobody serves; start the gateway with --stdio for it", "method", method)
		},
	}, int(a.Config.Limits.Message))
	go func() {
		if <-gone; asked.Load() && !over.Load() {
			a.log.Info("the client on stdin has gone: stopping")
			hungUp()
		}
	}()
	return func() {
		over.Store(true)
		leave()
	}
}
