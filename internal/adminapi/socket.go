package adminapi

import "net"

// A Socket is the admin socket of this process. Close removes it from the registry.
type Socket struct {
	net.Listener
	Token  string // that requests need; "" = none, because only this user can connect
	remove func()
}

// Close implements net.Listener.
func (s *Socket) Close() error {
	s.remove()
	return s.Listener.Close()
}
