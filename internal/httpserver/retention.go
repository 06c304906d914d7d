package httpserver

// accountRetained notes that s keeps delta bytes more than before, and takes from those
// who have kept longest what is too much.
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

// maxRetained bounds what all sessions keep together.
func (srv *Server) maxRetained() int64 { return 64 * int64(srv.opts.RetainLimit) }

// evictRetained makes room: the session that began first to keep anything forgets all
// of it, delivered or not, and so on until the rest is within the bound.
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
