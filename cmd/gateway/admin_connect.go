package main

import (
	"context"
	"os"

	"mcpgateway/internal/transport"
)

// adminClients serves clients over the admin socket.
type adminClients struct{ *adminService }

// Connect implements adminserver.ClientServer. The client has the profile of the client on stdin.
func (a adminClients) Connect(ctx context.Context, conn *os.File) {
	defer conn.Close()
	stdio := transport.Stdio(conn, conn, int(a.Config.Limits.Message))
	if err := a.gateway.Serve(ctx, "", a.client, stdio); err != nil {
		a.log.Warn("client on the admin socket disconnected", "err", err)
	}
}
