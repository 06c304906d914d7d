package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/reload"
	"mcpgateway/internal/resourceserver"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func serveCommand(c *cli) *cobra.Command {
	alsoStdio := false
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), c, alsoStdio)
		},
	}
	serveFlags(cmd, &c.source, &alsoStdio)
	return cmd
}

// serveFlags adds the flags of serve to a command.
func serveFlags(cmd *cobra.Command, s *configSource, alsoStdio *bool) {
	cmd.Flags().StringVar(&s.listen, "listen", "",
		"serve HTTP at `ADDR`, e.g. 127.0.0.1:7420, instead of stdin and stdout")
	cmd.Flags().BoolVar(alsoStdio, "stdio", false,
		"with --listen: serve stdin and stdout as well")
	s.addProfileFlag(cmd)
}

// A service serves clients with an app: on stdin and stdout, over HTTP, or both.
type service struct {
	*app
	stdio
	autoToken   autoToken
	certificate reload.Certificates
	http        *httpserver.Server       // set by listen; nil = no HTTP
	verifier    *resourceserver.Verifier // of access tokens, in use by http; nil = none
	servesStdio bool
	url         string // of MCP over HTTP; "" = no HTTP
	systemd     *systemdReporter
}

// newService returns a service for an app.
func newService(a *app, io stdio) *service {
	return &service{app: a, stdio: io, autoToken: autoToken{log: a.log}}
}

// serve runs the command serve. If alsoStdio is true, it serves stdin and stdout as well as HTTP.
func serve(ctx context.Context, c *cli, alsoStdio bool) error {
	sighup, release := c.sighup.Subscribe(c.in)
	defer release()
	a, err := c.open(ctx, runMode{serving: true})
	if err != nil {
		return err
	}
	if a.client != nil && a.Config.Listen != "" && !alsoStdio {
		a.close()
		return usageError{errors.New("--profile is for the client on stdin"),
			"over HTTP the URL selects the profile: /mcp/" + c.source.profile}
	}
	c.secondSignal.set(a.gateway.EndGracePeriods)
	s := newService(a, c.stdio)
	if a.Config.Listen == "" {
		s.systemd = newSystemdReporter(c.systemd, s, "")
		s.servesStdio = true
		s.logStdioStart()
		c.serving = true
		return a.run(ctx, func(ctx context.Context) error {
			defer logSignal(ctx, a.log)()
			return s.runReloading(ctx, &c.source, sighup, s.serveStdio)
		})
	}
	ln, err := s.listen()
	if err != nil {
		a.close()
		return err
	}
	url := endpointURL(a.Config, ln.Addr())
	a.pages.setURL(publicURL(a.Config, url))
	s.systemd = newSystemdReporter(c.systemd, s, readyURL(a.Config, ln.Addr()))
	s.servesStdio, s.url = alsoStdio, url
	s.logHTTPStart(url)
	c.serving = true
	return a.run(ctx, func(ctx context.Context) error {
		defer logSignal(ctx, a.log)()
		a.backends.Start()
		if !alsoStdio {
			var disconnected context.CancelFunc
			ctx, disconnected = context.WithCancel(ctx)
			defer disconnected()
			defer s.rejectStdioClient(url, disconnected)()
		}
		return s.runReloading(ctx, &c.source, sighup, func(ctx context.Context) error {
			return s.serveHTTP(ctx, ln, alsoStdio)
		})
	})
}

// serveHTTP serves HTTP and, if alsoStdio is true, stdin and stdout as well. It returns when ctx is
// done, when the HTTP server fails or, with alsoStdio, when the client on stdin disconnects.
func (s *service) serveHTTP(ctx context.Context, ln net.Listener, alsoStdio bool) error {
	both, end := context.WithCancel(ctx)
	defer end()
	var stdio sync.WaitGroup
	var failed error
	if alsoStdio {
		stdio.Go(func() {
			defer end() // the client that has started the gateway has disconnected
			failed = s.serveStdio(both)
		})
	}
	err := s.http.Run(both, ln)
	end()
	stdio.Wait()
	return errors.Join(failed, err)
}

func (s *service) serveStdio(ctx context.Context) error {
	conn := transport.Stdio(s.in, s.out, int(s.Config.Limits.Message))
	return s.gateway.Serve(ctx, "", s.client, &stdinConn{Conn: conn, app: s.app})
}

// A stdinConn is the connection to the client on stdin and stdout. It logs the end of stdin,
// because the gateway then stops, which is unexpected if there is no client.
type stdinConn struct {
	transport.Conn
	app      *app
	received bool // a message was received; used only by Read
}

func (s *stdinConn) Read() (wire.Message, wire.ID, error) {
	m, about, err := s.Conn.Read()
	switch {
	case err != io.EOF:
		s.received = true
	case s.received || s.app.Config.Listen != "":
		s.app.log.Info("stdin ended: stopping")
	default:
		s.app.log.Info("stdin ended without a message: stopping",
			"text", "to run as a service use --listen")
	}
	return m, about, err
}

// logStdioStart logs that the gateway serves stdin and stdout.
func (s *service) logStdioStart() {
	if s.Source == "" {
		s.log.Info(noFileMessage + laterFileMessage)
	} else {
		s.log.Info("serving on stdin and stdout", "file", s.Source, "version", version)
	}
	if isTerminal(s.in) {
		s.log.Info("stdin is a terminal, not an MCP client",
			"text", "to add the gateway to a client: claude mcp add -s user gateway -- gateway")
	}
}
