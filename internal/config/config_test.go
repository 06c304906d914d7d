package config

import "testing"

func TestLoopback(t *testing.T) {
	for listen, want := range map[string]bool{
		"127.0.0.1:7420":          true,
		"127.8.9.10:0":            true,
		"[::1]:7420":              true,
		"[::ffff:127.0.0.1]:7420": true,
		"localhost:7420":          true,
		"LOCALHOST:7420":          true,

		"":                         false,
		":7420":                    false,
		"0.0.0.0:7420":             false,
		"[::]:7420":                false,
		"192.168.1.2:7420":         false,
		"[fd00::1]:7420":           false,
		"127.1:7420":               false,
		"gateway.example:7420":     false,
		"localhost.example:7420":   false,
		"127.0.0.1.example:7420":   false,
		"sub.localhost:7420":       false,
		"127.0.0.1":                false,
		"unix:/tmp/localhost:7420": false,
	} {
		if got := (&Config{Listen: listen}).Loopback(); got != want {
			t.Errorf("%q: got %v", listen, got)
		}
	}
}
