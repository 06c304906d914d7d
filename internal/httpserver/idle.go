package httpserver

import (
	"context"
	"time"
)

// sweepIdle closes idle sessions until ctx is done. It closes a session at most 1/1000 of
// IdleTimeout too late.
func (srv *Server) sweepIdle(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next := srv.opts.IdleTimeout // also early enough for sessions that are opened later
		for _, s := range srv.openSessions() {
			if left := s.closeIfIdle(); left > 0 {
				next = min(next, left)
			}
		}
		timer.Reset(max(next, srv.opts.IdleTimeout/1000))
	}
}
