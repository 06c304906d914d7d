//go:build unix

package integration

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	gatewaypkg "mcpgateway/gateway"
	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An inProcess is the gateway with its HTTP server, assembled in this process like in
// cmd/gateway, where the race detector covers it and its goroutines and memory can be counted.
// Its stdio backends are still processes.
type inProcess struct {
	url    string
	marker envMarker
	set    *backends.Set
	stop   func() // returns when everything has stopped; may be called again
}

// inProcessOptions are the options of newInProcess; the zero value works.
type inProcessOptions struct {
	idle      time.Duration
	observers []gatewaypkg.Observer
}

// newInProcess runs a gateway until the test ends. It returns when all backends have been
// listed.
func newInProcess(t testing.TB, o inProcessOptions, list ...config.Backend) *inProcess {
	t.Helper()
	in := &inProcess{marker: newSetup(t, nil).marker}
	for i := range list {
		list[i].Enabled = true
		if list[i].Command != "" {
			env := map[string]string{markerEnv: string(in.marker)}
			maps.Copy(env, list[i].Env)
			list[i].Env = env
		}
	}
	c := config.Default()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	info := mcp.Implementation{Name: "mcp-gateway", Version: "test"}
	in.set = backends.New(backends.Options{
		Backends: list,
		Catalog: catalog.Options{
			Prefix: catalog.Prefix(c.Catalog.Prefix), Separator: c.Catalog.Separator,
			NameLimit: c.Catalog.NameLimit, PageSize: int(c.Limits.Page),
		},
		CatalogWait: waitTimeout, MaxMessage: int(c.Limits.Message), ClientInfo: info, Log: log,
	})
	gw := gatewaypkg.New(gatewaypkg.Options{
		Backends: in.set, Observers: o.observers, Info: info, MaxInFlight: c.Limits.InFlight,
		Log: log,
	})
	server := httpserver.New(httpserver.Options{
		OpenSession: func(
			v httpserver.SessionInfo, out transport.Writer,
		) httpserver.SessionHandler {
			return gw.Open(v.ID, v.Principal, gatewaypkg.StreamableHTTP, out)
		},
		ServeRequest: func(
			v httpserver.SessionInfo, m wire.Message, out transport.Writer,
		) (cancel func()) {
			return gw.ServeRequest(v.ID, v.Principal, m, out)
		},
		ShutDownRequests: gw.ShutDownRequests,
		ValidateHeaders:  gw.ValidateHeaders,
		MessageLimit:     int(c.Limits.Message),
		MaxSessions:      c.Limits.Sessions,
		IdleTimeout:      o.idle,
		RetainLimit:      int(c.Limits.Events),
		Loopback:         true,
		Log:              log,
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in.url = "http://" + ln.Addr().String() + "/mcp"

	behind, endBehind := context.WithCancel(context.Background())
	front, endFront := context.WithCancel(context.Background())
	var running, serving sync.WaitGroup
	running.Go(func() { _ = in.set.Run(behind, gw) })
	running.Go(func() { _ = gw.Run(behind) })
	in.set.Start()
	serving.Go(func() { _ = server.Run(front, ln) })
	in.stop = func() {
		endFront()
		serving.Wait()
		endBehind()
		running.Wait()
	}
	t.Cleanup(in.stop)
	in.awaitCatalog(t)
	return in
}

func (in *inProcess) awaitCatalog(t testing.TB) {
	t.Helper()
	timeout := time.After(waitTimeout)
	for v := in.set.View(); !v.Complete; v = in.set.View() {
		select {
		case <-v.Changed:
		case <-timeout:
			t.Fatalf("not all backends are ready: %+v", in.set.Status())
		}
	}
}

// configBackend returns a backend as the gateway has it after it has read the YAML.
func configBackend(b backend, sharing string) config.Backend {
	return config.Backend{Name: b.Name, Command: b.Command, Args: b.Args, Env: b.Env, URL: b.URL,
		Sharing: config.Sharing(sharing)}
}
