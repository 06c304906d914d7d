package main

import (
	"context"
	"time"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/reload"
)

// An adminService serves the admin API of a service. The types that embed it
// implement the interfaces of adminserver.
type adminService struct {
	*service
	started  time.Time
	reloader *reload.Reloader
}

// run serves the admin API on the admin socket until ctx is done. Failures are logged, and cost
// nothing else.
func (a *adminService) run(ctx context.Context) {
	if a.Config.StateDir == "" {
		return
	}
	socket, err := adminapi.Listen(a.Config.StateDir, callid.Prefix())
	if err != nil {
		a.log.Warn("cannot open the admin socket: gateway status does not show this gateway",
			"err", err)
		return
	}
	defer socket.Close()
	adminapi.Sweep(ctx, a.Config.StateDir)
	server := adminserver.New(adminserver.Options{
		Status: adminStatus{a}, Calls: adminCalls{a}, Events: adminEvents{a},
		Logs: adminLogs{a}, Control: adminControl{a}, Log: a.log,
	})
	if err := server.Serve(ctx, socket, adminserver.AccessRule{Token: socket.Token}); err != nil {
		a.log.Warn("admin socket closed", "err", err)
	}
}

// errorText returns the masked text of an error, "" for nil.
func (a *adminService) errorText(err error) string {
	if err == nil {
		return ""
	}
	return a.mask.String(err.Error())
}
