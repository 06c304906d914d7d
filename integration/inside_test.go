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
	gate "mcpgateway/gateway"
	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/transport"
)

// An inside is the gateway with its HTTP door, put together in this process as cmd/gateway does it: where the race
// detector sees it, and its goroutines and memory can be counted. Its stdio backends are processes all the same.
type inside struct {
	url  string
	mark mark
	set  *backends.Set
	stop func() // returns when nothing of it is left; may be called again
}

// insideOptions of an inside; the zero value works.
type insideOptions struct {
	idle      time.Duration
	observers []gate.Observer
}

// newInside runs a gateway until the test ends. It returns when all backends have listed what they have.
func newInside(t testing.TB, o insideOptions, list ...config.Backend) *inside {
	t.Helper()
	in := &inside{mark: newSetup(t, nil).mark}
	for i := range list {
		list[i].Enabled = true
		if list[i].Command != "" {
			env := map[string]string{markEnv: string(in.mark)}
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
		CatalogWait: patience, MaxMessage: int(c.Limits.Message), ClientInfo: info, Log: log,
	})
	gw := gate.New(gate.Options{
		Backends: in.set, Observers: o.observers, Info: info, MaxInFlight: c.Limits.InFlight, Log: log,
	})
	d := httpserver.New(httpserver.Options{
		OpenSession: func(v httpserver.SessionInfo, out transport.Writer) httpserver.SessionHandler {
			return gw.Open(v.ID, v.Principal, out)
		},
		ServeStateless: func(ctx context.Context, v httpserver.SessionInfo, conn transport.Conn) {
			_ = gw.Serve(ctx, v.ID, v.Principal, conn)
		},
		ValidateHeaders: gw.ValidateHeaders,
		MessageLimit:    int(c.Limits.Message), MaxSessions: c.Limits.Sessions, IdleTimeout: o.idle, RetainLimit: int(c.Limits.Events),
		Loopback: true, Log: log,
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
	serving.Go(func() { _ = d.Run(front, ln) })
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

func (in *inside) awaitCatalog(t testing.TB) {
	t.Helper()
	timeout := time.After(patience)
	for v := in.set.View(); !v.Complete; v = in.set.View() {
		select {
		case <-v.Changed:
		case <-timeout:
			t.Fatalf("not all backends have come up: %+v", in.set.Status())
		}
	}
}

// of is a backend of the YAML as the gateway has it once it has read it.
func of(b backend, sharing string) config.Backend {
	return config.Backend{Name: b.Name, Command: b.Command, Args: b.Args, Env: b.Env, URL: b.URL, Sharing: sharing}
}
