package main

import (
	"errors"
	"net"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/oauthclient"
)

// The redirect URI has the port oauth.redirect_port, so that it can be registered at the
// authorization server.
func TestLoginListensAtTheRedirectPort(t *testing.T) {
	auth, err := oauthclient.New(oauthclient.Options{Name: "notes", URL: "https://notes.example",
		Store: oauthclient.NewStore("", nil)})
	if err != nil {
		t.Fatal(err)
	}
	listen := func(port int) (net.Listener, error) {
		w := &loginWait{name: "notes", auth: auth, oneShot: &oneShot{app: &app{
			Loaded: &config.Loaded{Config: &config.Config{Backends: []config.Backend{
				{Name: "notes", OAuth: config.OAuth{RedirectPort: port}}}}}}}}
		return w.listen()
	}
	any, err := listen(0)
	if err != nil {
		t.Fatal(err)
	}
	port := any.Addr().(*net.TCPAddr).Port
	_, err = listen(port)
	hinted, is := errors.AsType[hintedError](err)
	if !is || hinted.hint != "end the program that uses the port, or change oauth.redirect_port" {
		t.Errorf("the port is in use: %v", err)
	}
	any.Close()
	l, err := listen(port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a := l.Addr().(*net.TCPAddr); a.Port != port || !a.IP.IsLoopback() {
		t.Errorf("listens at %v", a)
	}
}
