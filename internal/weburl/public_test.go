package weburl

import "testing"

func TestIsPublicAddrPort(t *testing.T) {
	for address, want := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true,
		"127.0.0.1:443": false, "10.1.2.3:443": false, "169.254.169.254:80": false,
		"172.16.0.1:1": false, "192.168.0.1:1": false, "100.64.0.1:1": false, "0.0.0.0:1": false,
		"[::1]:443": false, "[fe80::1%eth0]:443": false, "[fd00::1]:443": false,
		"[::ffff:10.0.0.1]:443": false, "[64:ff9b::a00:1]:443": false,
		"[::10.0.0.1]:443": false, "[3fff::1]:443": false, "[5f00::1]:443": false, "224.0.0.1:443": false,
		"x:443": false, "93.184.216.34": false, "": false,
	} {
		if got := IsPublicAddrPort(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

func TestIsPrivateHost(t *testing.T) {
	for host, want := range map[string]bool{
		"example.com": false, "93.184.216.34": false, "169.254.169.254": true, "::1": true,
		"localhost": true, "LOCALHOST.": true, "a.localhost": true, "localhost.example": false,
	} {
		if got := IsPrivateHost(host); got != want {
			t.Errorf("%s: %t", host, got)
		}
	}
}
