package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver"
	"mcpgateway/internal/adminserver/page"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/metrics"
	"mcpgateway/internal/reload"
)

// An adminService serves the admin API of a service. The types that embed it
// implement the interfaces of adminserver.
type adminService struct {
	*service
	started  time.Time
	reloader *reload.Reloader
	adminURL atomic.Pointer[string] // of the admin API over HTTP; nil = it is not served
	logins   *page.Logins           // at the page
}

// run serves the admin API on the admin socket and at admin.listen until ctx is done. Failures are
// logged, and cost nothing else.
func (a *adminService) run(ctx context.Context) {
	a.logins = page.NewLogins(a.adminToken)
	server := adminserver.New(adminserver.Options{
		Status: adminStatus{a}, Calls: adminCalls{a}, Events: adminEvents{a},
		Logs: adminLogs{a}, Control: adminControl{a}, Catalog: adminCatalog{a},
		Clients: adminClients{a}, Metrics: metrics.NewHandler(adminMetrics{adminStatus{a}}),
		Page: adminPage{a}, Log: a.log,
	})
	var serving sync.WaitGroup
	defer serving.Wait()
	if a.Config.StateDir != "" {
		serving.Go(func() { a.serveSocket(ctx, server) })
	}
	if a.adminToken != "" {
		serving.Go(func() { a.serveAddress(ctx, server) })
	}
}

// serveSocket serves the admin API on the admin socket.
func (a *adminService) serveSocket(ctx context.Context, server *adminserver.API) {
	socket, err := adminapi.Listen(a.Config.StateDir, callid.Prefix())
	if err != nil {
		a.log.Warn("cannot open the admin socket: gateway status does not show this gateway",
			"err", err)
		return
	}
	defer socket.Close()
	adminapi.Sweep(ctx, a.Config.StateDir)
	if err := server.Serve(ctx, socket, adminserver.AccessRule{Token: socket.Token}); err != nil {
		a.log.Warn("admin socket closed", "err", err)
	}
}

// serveAddress serves the admin API at admin.listen. Another gateway with the same configuration
// may have the address already.
func (a *adminService) serveAddress(ctx context.Context, server *adminserver.API) {
	address := a.Config.Admin.Listen
	ln, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		a.log.Warn("admin API not served: admin.listen is in use, perhaps by another gateway "+
			"with the same configuration; gateway status shows both", "file", a.Source)
		return
	}
	if err != nil {
		a.log.Warn("admin API not served at admin.listen", "err", err)
		return
	}
	url := "http://" + listenHost(address, ln.Addr())
	a.adminURL.Store(&url)
	a.log.Info("admin API at "+url, "text", adminTokenHint(a.Config))
	if !a.Config.Admin.Loopback() {
		a.log.Warn("admin.listen can be reached from other machines, and is not encrypted",
			"text", "put a proxy with TLS in front of it, or use ssh -L and 127.0.0.1")
	}
	rule := adminserver.AccessRule{Token: a.adminToken, CheckBrowser: true, Logins: a.logins,
		Hosts: append([]string{address}, a.Config.Hosts...), Loopback: a.Config.Admin.Loopback()}
	if err := server.Serve(ctx, ln, rule); err != nil {
		a.log.Warn("admin API closed", "err", err)
	}
}

// errorText returns the masked text of an error, "" for nil.
func (a *adminService) errorText(err error) string {
	if err == nil {
		return ""
	}
	return a.mask.String(err.Error())
}
