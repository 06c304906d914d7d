// Package oidctest runs a real OpenID provider and real protected MCP servers in the test process,
// at loopback addresses over plain HTTP.
//
// A [Provider] is github.com/zitadel/oidc with storage in memory, behind handlers that add what it
// lacks: metadata of RFC 8414, dynamic registration (RFC 7591), client ID metadata documents, "iss"
// in the authorization response (RFC 9207), resource indicators (RFC 8707), and strict client
// authentication. It is the authorization server of tests with the gateway as a resource server:
//
//	p := oidctest.New(t, oidctest.Options{Audience: []string{gatewayURL}})
//	token := p.IssueToken(oidctest.TokenSpec{User: "ann", Scopes: []string{"read"}})
//
// and of tests with the gateway as an OAuth client of a backend:
//
//	p := oidctest.New(t, oidctest.Options{})
//	server := oidctest.NewServer(t, p, oidctest.ServerOptions{})
//	// configure the backend with server.URL(), and let the client open its authorization URL:
//	callback, err := p.Approve(authorizationURL, "ann")
//
// There is no login page: the authorization endpoint approves each request at once and redirects,
// as [Provider.SetUser] and [Provider.SetDenied] determine. A request of a plain HTTP client that
// follows redirects therefore completes a login.
//
// The Provider counts and records requests, and records every secret that it issued or received.
// It can be told to rotate keys, to end tokens, and to fail ([Provider.SetFault]).
//
// The package is for tests only. Everything ends with the test that it was created for.
package oidctest
