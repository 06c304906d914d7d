package main

import (
	"errors"
	"net"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
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

// --principal finds the principal that the running gateway has for a client. The number of a token
// without a name, which a reload changes, and the changed name of a subject find nobody, so that
// the login is not stored for another client.
func TestPrincipalFlagFindsTheClient(t *testing.T) {
	cfg := &config.Config{}
	cfg.Auth.Tokens = []config.Token{{Text: "0123456789abcdef-1"}, {Name: "bob", Text: "x"}}
	cfg.Auth.OAuth.Issuer = "https://i.example"
	subject := principal.Subject{Issuer: "https://i.example", ID: "ann:1"}
	client := subject
	client.IsClient = true
	odd := principal.FromSubject(principal.Subject{Issuer: "https://i.example", ID: "a\n"})
	for name, want := range map[string]*principal.Principal{
		"bob":                principal.FromToken(principal.TokenIdentity{Name: "bob", Number: 7}),
		"oauth:ann:1":        principal.FromSubject(subject),
		"oauth-client:ann:1": principal.FromSubject(client),
		"1":                  nil, "2": nil, "alice": nil, "oauth:": nil, odd.Name(): nil,
	} {
		got, err := findPrincipal(cfg, name)
		if (err == nil) != (want != nil) || got.Key() != want.Key() {
			t.Errorf("%q: %q, %v", name, got.Key(), err)
		}
	}
	_, err := findPrincipal(cfg, "alice")
	if u, is := errors.AsType[usageError](err); !is || u.hint != "the names are: bob" {
		t.Errorf("%#v", err)
	}
	cfg.Auth.Tokens = nil
	_, err = findPrincipal(cfg, "ann:1")
	if u, is := errors.AsType[usageError](err); !is ||
		u.hint != "a user of auth.oauth is named oauth:SUBJECT" {
		t.Errorf("%#v", err)
	}
}
