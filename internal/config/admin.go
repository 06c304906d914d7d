package config

// Admin configures the admin API over HTTP. The admin socket needs no configuration.
type Admin struct {
	// Listen is the address of the admin API, host:port with a numeric port, 0 = any free port; ""
	// = none. Requests need the token in the file admin-token of StateDir.
	Listen string `koanf:"listen"`
}

// Loopback reports whether Listen is an address that only this machine can reach; see
// [Config.Loopback].
func (a Admin) Loopback() bool { return isLoopbackAddress(a.Listen) }
