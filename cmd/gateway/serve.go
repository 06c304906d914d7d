package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"mcpgateway/door"
	"mcpgateway/transport"
)

func serveCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP on stdin and stdout (the default), or over HTTP",
		Long: `serve speaks MCP on stdin and stdout until stdin ends or it gets SIGTERM, SIGINT or
SIGHUP. Logs go to stderr. The backends are started when a client initializes, and ended
with the gateway.

With --listen (or listen: in the file) it serves any number of clients over HTTP instead, at
http://ADDR/mcp, and at http://ADDR/sse those that know the older transport only; the
backends are started at once. --stdio asks for both: then the end of stdin ends all.

    gateway serve --listen 127.0.0.1:7420
    claude mcp add --transport http gateway http://127.0.0.1:7420/mcp`,
		Args: cobra.NoArgs,
		RunE: f.serve,
	}
	f.serveFlags(cmd)
	return cmd
}

// serveFlags gives a command the flags of serve.
func (f *flags) serveFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.listen, "listen", "", "serve HTTP at `ADDR`, e.g. 127.0.0.1:7420, instead of stdin and stdout")
	cmd.Flags().BoolVar(&f.onStdio, "stdio", false, "serve stdin and stdout, be it that it listens, too")
}

func (f *flags) serve(cmd *cobra.Command, _ []string) error {
	a, err := f.open(false)
	if err != nil {
		return err
	}
	if a.Config.Listen == "" {
		a.greet(f.in)
		return a.run(cmd.Context(), func(ctx context.Context) error { return f.serveStdio(ctx, a) })
	}
	ln, d, err := a.listen()
	if err != nil {
		a.close()
		return err
	}
	a.greetHTTP(ln.Addr())
	return a.run(cmd.Context(), func(ctx context.Context) error {
		a.set.Start()
		both, end := context.WithCancel(ctx)
		defer end()
		var stdio sync.WaitGroup
		var failed error
		if f.onStdio {
			stdio.Go(func() {
				defer end() // who started us on its pipes is gone
				failed = f.serveStdio(both, a)
			})
		}
		err := d.Run(both, ln)
		end()
		stdio.Wait()
		return errors.Join(failed, err)
	})
}

func (f *flags) serveStdio(ctx context.Context, a *app) error {
	return a.gateway.Serve(ctx, "", transport.Stdio(f.in, f.out, int(a.Config.Limits.Message)))
}

// listen opens the HTTP door.
func (a *app) listen() (net.Listener, *door.Door, error) {
	c := a.Config
	o := door.Options{
		Serve: func(ctx context.Context, session string, conn transport.Conn) {
			_ = a.gateway.Serve(ctx, session, conn) // how it ended is in the log
		},
		Ready:    func() bool { return a.set.View().Settled },
		Limit:    int(c.Limits.Message),
		Sessions: c.Limits.Sessions,
		Idle:     c.Limits.SessionIdle,
		Events:   int(c.Limits.Events),
		Tokens:   c.Auth.Tokens,
		Origins:  c.Origins,
		Hosts:    c.Hosts,
		Loopback: c.Loopback(),
		Log:      a.log,
	}
	if c.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		if err != nil {
			return nil, nil, hinted{fmt.Errorf("tls: %w", err), "name a certificate and its key in PEM files under tls.cert and tls.key"}
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	ln, err := net.Listen("tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, nil, hinted{fmt.Errorf("listen: %s is in use", c.Listen),
			"perhaps a gateway is running there already: use that one, or choose another port with --listen"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	return ln, door.New(o), nil
}

// greet tells a person what to expect.
func (a *app) greet(in *os.File) {
	if a.Source == "" {
		a.log.Info(noFile)
	} else {
		a.log.Info("serving on stdin and stdout", "file", a.Source, "version", version)
	}
	if isTerminal(in) {
		a.log.Info("stdin is a terminal, but it is a client that should be there: claude mcp add -s user gateway -- gateway")
	}
}

// greetHTTP is greet for who listens.
func (a *app) greetHTTP(addr net.Addr) {
	scheme := "http"
	if a.Config.TLS.Cert != "" {
		scheme = "https"
	}
	if a.Source == "" {
		a.log.Info(noFile)
	}
	url := fmt.Sprintf("%s://%s/mcp", scheme, addr)
	a.log.Info("serving at "+url, "file", a.Source, "version", version)
	a.log.Info("to use it: claude mcp add --transport http gateway " + url)
}
