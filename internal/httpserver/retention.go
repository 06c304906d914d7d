package httpserver

// accountRetained adds delta to the bytes that s retains and enforces maxRetained.
func (srv *Server) accountRetained(s *httpSession, delta int) {
	total := srv.retained.Add(int64(delta))
	if delta <= 0 {
		return
	}
	srv.mu.Lock()
	if s.retainerElem == nil && srv.sessions[s.key] == s {
		s.retainerElem = srv.retainers.PushBack(s)
	}
	srv.mu.Unlock()
	if total > srv.maxRetained() {
		srv.evictRetained()
	}
}

// maxRetained is the limit of the bytes retained by all sessions together.
func (srv *Server) maxRetained() int64 { return 64 * int64(srv.opts.RetainLimit) }

// evictRetained enforces maxRetained. Until the limit is met, the session that was the first to
// begin retaining events drops its retained events, sent or unsent.
func (srv *Server) evictRetained() {
	for srv.retained.Load() > srv.maxRetained() {
		srv.mu.Lock()
		front := srv.retainers.Front()
		if front == nil {
			srv.mu.Unlock()
			return
		}
		s := srv.retainers.Remove(front).(*httpSession)
		s.retainerElem = nil
		srv.mu.Unlock()
		s.dropRetained()
	}
}
