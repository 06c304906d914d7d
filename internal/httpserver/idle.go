package httpserver

import (
	"context"
	"time"
)

// sweepIdle ends the sessions that are idle, each when its time has come or at most one thousandth of it later, until ctx
// is done.
func (srv *Server) sweepIdle(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := srv.opts.IdleTimeout // of those, too, that begin from now on
		for _, s := range srv.openSessions() {
			if left := s.closeIfIdle(); left > 0 {
				next = min(next, left)
			}
		}
		timer.Reset(max(next, srv.opts.IdleTimeout/1000))
	}
}
