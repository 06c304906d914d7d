package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"

	"mcpgateway/gateway"
	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/reload"
	"mcpgateway/internal/resourceserver"
	"mcpgateway/internal/text"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// listen opens the listener and creates the HTTP server for it. It returns an error if the tokens
// or the certificate cannot be read, or if the gateway cannot listen at the address.
func (s *service) listen() (net.Listener, error) {
	c := s.Config
	tokens, err := s.autoToken.tokens(s.Loaded, c)
	if err != nil {
		return nil, err
	}
	s.setSecrets(config.Secrets(c), tokenTexts(tokens))
	setTokenRates(&s.rates, tokens)
	o := httpserver.Options{
		OpenSession: func(
			v httpserver.SessionInfo, out transport.Writer,
		) httpserver.SessionHandler {
			t := gateway.StreamableHTTP
			if v.HTTPSSE {
				t = gateway.HTTPSSE
			}
			return s.gateway.Open(v.ID, v.Principal, t, out)
		},
		ServeRequest: func(
			v httpserver.SessionInfo, m wire.Message, out transport.Writer,
		) (cancel func()) {
			return s.gateway.ServeRequest(v.ID, v.Principal, m, out)
		},
		ShutDownRequests: s.gateway.ShutDownRequests,
		ValidateHeaders:  s.gateway.ValidateHeaders,
		OnRejected: func(v httpserver.SessionInfo, m wire.Message, err *wire.Error) {
			s.gateway.RecordRejected(v.ID, v.Principal, m, err)
		},
		PendingBackends: func(p *principal.Principal) []string {
			return slices.DeleteFunc(unsettled(enabled(s.backends.Status())),
				func(name string) bool { return !s.backends.IsPermitted(p, name) })
		},
		TraceContext: s.traces != nil,
		LoginPages:   s.pages,
		Via:          s.via,
		MessageLimit: int(c.Limits.Message),
		MaxSessions:  c.Limits.Sessions,
		IdleTimeout:  c.Limits.SessionIdle,
		RetainLimit:  int(c.Limits.Events),
		BacklogLimit: c.Limits.Outbox,
		AccessRules:  s.accessOf(c, tokens),
		Loopback:     c.Loopback(),
		Log:          s.log,
	}
	pair, err := reload.LoadCertificate(s.Loaded, c.TLS)
	if err != nil {
		return nil, err
	}
	s.certificate.Store(pair)
	o.TLS = s.certificate.TLSConfig()
	ln, err := net.Listen("tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, hintedError{
			fmt.Errorf("listen: %s is in use", c.Listen),
			"a gateway may be running there already: configure its URL in your client, " +
				"or choose another port with --listen",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.http = httpserver.New(o)
	return ln, nil
}

// accessOf returns who may use the HTTP server under c. tokens are the tokens of c, without auto.
// An unchanged section auth.oauth keeps its verifier, with the tokens that it has verified.
func (s *service) accessOf(c *config.Config, tokens []config.Token) httpserver.AccessRules {
	s.verifier = s.verifierOf(c.Auth.OAuth)
	a := httpserver.AccessRules{OAuth: s.verifier, Origins: c.Origins, Hosts: c.Hosts,
		Profiles: slices.Sorted(maps.Keys(c.Profiles))}
	for _, t := range tokens {
		a.Tokens = append(a.Tokens, httpserver.StaticToken{
			Text: t.Text, Name: t.Name, Profile: t.Profile, Expires: t.Expires,
		})
	}
	return a
}

// verifierOf returns the verifier for a section auth.oauth; nil = the section is not set.
func (s *service) verifierOf(c config.AuthorizationServer) *resourceserver.Verifier {
	if !c.IsSet() {
		return nil
	}
	o := resourceserver.Options{
		Issuer: c.Issuer, Audience: c.Audience, Scopes: c.Scopes,
		AllowPrivate: c.AllowPrivate,
		ClientID:     c.Introspection.ClientID, ClientSecret: c.Introspection.ClientSecret,
		Log: s.log,
	}
	for _, p := range c.Profiles {
		o.Profiles = append(o.Profiles, resourceserver.ProfileSelector{
			Scope: p.Scope, Claim: p.Claim, Value: p.Value, Profile: p.Profile})
	}
	if s.verifier != nil && s.verifier.Equal(o) {
		return s.verifier
	}
	return resourceserver.New(o)
}

func tokenTexts(tokens []config.Token) (texts []string) {
	for _, t := range tokens {
		texts = append(texts, t.Text)
	}
	return texts
}

// logHTTPStart logs the URL of the gateway, and the command that adds the gateway to Claude Code.
// Without a token it also logs who has access. For the generated token it prints the command to
// stderr if stderr is a terminal; otherwise the logged command reads the token from its file.
func (s *service) logHTTPStart(url string) {
	if s.Source == "" {
		s.log.Info(noFileMessage + laterFileMessage)
	}
	s.log.Info("serving at "+url, "file", s.Source, "version", version)
	use, token := "to use it in Claude Code", ""
	switch auth := s.Config.Auth; {
	case len(auth.Tokens) == 0 && auth.OAuth.IsSet():
		use += ", which then asks you to log in"
	case len(auth.Tokens) == 0:
		s.log.Info("no token configured: access for every user and program of this machine",
			"text", "to create a token set auth: { tokens: [auto] } in the configuration")
	case auth.Tokens[0].Text == config.AutoToken && isTerminal(s.err):
		fmt.Fprintln(s.err, "to use it: "+claudeCommand(url, s.autoToken.value))
		return
	case auth.Tokens[0].Text == config.AutoToken:
		// The log must not contain the token, because logs may be stored.
		token = "$(cat " + text.ShellWord(autoTokenPath(s.Config)) + ")"
	default:
		if auth.TokenVariable == "" {
			use += ", with one of auth.tokens in GATEWAY_TOKEN"
		}
		token = "$" + cmp.Or(auth.TokenVariable, "GATEWAY_TOKEN")
	}
	s.log.Info(use, "text", claudeCommand(url, token))
}

// claudeCommand returns the command that adds the gateway to Claude Code. token may be "". The
// command contains no " or \, so that it can be copied from the log.
func claudeCommand(url, token string) string {
	command := "claude mcp add -s user --transport http gateway " + url
	if token != "" {
		command += " -H 'Authorization: Bearer '" + token
	}
	return command
}

// endpointURL returns the URL for clients.
func endpointURL(c *config.Config, addr net.Addr) string {
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + listenHost(c.Listen, addr) + "/mcp"
}

// listenHost returns the host and port of a listener at addr for a URL. The host is that of the
// configured address, or the name of this machine if the listener has all addresses.
func listenHost(configured string, addr net.Addr) string {
	host := addr.String()
	written, _, _ := net.SplitHostPort(configured)
	_, notIP := netip.ParseAddr(written)
	if ip, ok := addr.(*net.TCPAddr); ok && written != "" && notIP != nil {
		host = net.JoinHostPort(written, strconv.Itoa(ip.Port))
	} else if ok && ip.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		host = net.JoinHostPort(name, strconv.Itoa(ip.Port))
	}
	return host
}

// rejectStdioClient responds with errors to a client that has started the gateway with pipes
// although the configuration has listen. If this client sends a request and disconnects,
// rejectStdioClient calls disconnected, because a gateway that a client has started must not
// outlive the client and keep the port.
func (s *service) rejectStdioClient(url string, disconnected func()) (end func()) {
	var rejected, ended atomic.Bool
	done, stop := serveErrors(s.stdio, errorResponder{
		"This gateway serves at " + url + " only: configure that URL, or start it with --stdio",
		func(method string) {
			rejected.Store(true)
			s.log.Warn("client on stdin rejected", "method", method,
				"text", "to serve it, start the gateway with --stdio")
		},
	}, int(s.Config.Limits.Message))
	go func() {
		if <-done; rejected.Load() && !ended.Load() {
			s.log.Info("client on stdin disconnected: stopping")
			disconnected()
		}
	}()
	return func() {
		ended.Store(true)
		stop()
	}
}
