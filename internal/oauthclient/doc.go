// Package oauthclient is the gateway's OAuth 2.1 client: it obtains the access tokens for requests
// to the servers behind the gateway (MCP 2026-07-28, "Authorization").
//
//	Authorization.Token ─ the token for the next request; refreshed shortly before it expires
//	Authorization.Refused ─ after 401, or 403 insufficient_scope: another token, or a *LoginError
//	  └ attempts.share ─ one attempt for all requests ─ discover ─ refresh
//	Authorization.BeginLogin ─ discover ─ register ─ Login.URL, opened in a browser
//	  └ Login.Finish ─ the redirect's parameters ─ exchange ─ Store.save
//	Authorization.AwaitLogin ─ until this process or another one has logged in
//	Authorization.AwaitLogout ─ until one of them has deleted the login
//	Authorization.Logout ─ revoke (RFC 7009) ─ Store.remove
//
// There is one [Authorization] for each server, and one [Store] for all Authorizations. Several
// processes may use the same Store: a refresh token that the authorization server replaces at each
// use is used by one of them at a time.
//
// The protocol is that of golang.org/x/oauth2; challenges, the types of metadata and dynamic
// registration are those of the official Go SDK's oauthex. This package decides whom to ask,
// fetches metadata within bounds, and stores what it gets.
//
// Metadata comes from servers that are not trusted: see [guard]. No error of this package contains
// a token, a code or a client secret.
//
// Lock order: the file lock of a grant → Authorization.mu. attempts.mu is held alone.
package oauthclient
