package weburl

import (
	"net/url"
	"testing"
)

func TestOrigin(t *testing.T) {
	for address, want := range map[string]string{
		"https://Gateway.Example/a?b":  "https://gateway.example:443",
		"http://gateway.example":       "http://gateway.example:80",
		"HTTPS://gateway.example:8443": "https://gateway.example:8443",
		"https://user@[::1]/":          "https://[::1]:443",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := Origin(u); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.8.9.10": true, "::1": true,
		"::ffff:127.0.0.1": true,
		"":                 false, "0.0.0.0": false, "::": false, "10.0.0.1": false, "localhost.example": false,
		"sub.localhost": false, "127.1": false, "127.0.0.1:80": false, "[::1]": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
