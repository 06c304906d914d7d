//go:build linux

package integration

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/keyringtest"
	"mcpgateway/internal/mcptest/oidctest"
)

// Several gateways share a login whose refresh token rotates, at an authorization server that ends
// the login if a refresh token is used again. The access token ends many times: because its
// lifetime is over, and because the authorization server ends it.
func TestSeveralGatewaysKeepTheLoginThatTheyShare(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"files", "keyring"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			p := newProtected(t, oidctest.Options{AccessTokenLifetime: 2 * time.Second},
				oidctest.ServerOptions{})
			s := newSetup(t, nil, p.backend("notes"))
			var env []string
			if where == "keyring" {
				env = keyringtest.Start(t).Env
			}
			login := s.command("login", "notes")
			login.Env = append(login.Env, env...)
			runCommand(t, login).expect(t, 0, "logged in")
			var clients []caller
			for range 3 {
				cmd := s.command()
				cmd.Env = append(cmd.Env, env...)
				gw := startRaw(t, cmd)
				gw.initialize("2025-11-25")
				awaitCalls(t, gw, "read", `{}`)
				for range 4 {
					clients = append(clients, gw)
				}
			}
			load := startExpiryLoad(t, p, clients)
			for range 8 {
				refused := p.Refused(http.StatusUnauthorized)
				p.provider.ExpireAccessTokens()
				if !poll(waitTimeout, func() bool {
					return p.Refused(http.StatusUnauthorized) > refused
				}) {
					t.Fatal("no request was refused")
				}
				load.awaitMore(int64(4 * len(clients)))
			}
			refreshes := p.provider.Refreshes()
			if !poll(waitTimeout, func() bool { // because of the lifetime
				load.awaitMore(1)
				return p.provider.Refreshes() >= refreshes+3
			}) {
				t.Error("no token was refreshed before its end")
			}
			load.check()
			if n := p.provider.Reuses(); n != 0 {
				t.Errorf("a refresh token was used again %d times", n)
			}
			t.Logf("%d refreshes, %d times refused", p.provider.Refreshes(),
				p.Refused(http.StatusUnauthorized))
			for path, info := range s.loginFiles() {
				text, err := os.ReadFile(path)
				if err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v, %v", path, info.Mode(), err)
				}
				if secret := containsSecret(text, p.provider.Secrets()); (secret != "") !=
					(where == "files") {
					t.Errorf("the file in the case of %s has the secret %q", where, secret)
				}
			}
			logout := s.command("logout", "notes")
			logout.Env = append(logout.Env, env...)
			runCommand(t, logout).expect(t, 0, "revoked and deleted")
		})
	}
}

// containsSecret returns the first secret that text contains, "" = none.
func containsSecret(text []byte, secrets []string) string {
	for _, secret := range secrets {
		if bytes.Contains(text, []byte(secret)) {
			return secret
		}
	}
	return ""
}

// A gateway and commands log in, log out and refresh at the same time: nothing is damaged.
func TestLoginsAndLogoutsAtTheSameTime(t *testing.T) {
	t.Parallel()
	p := newProtected(t, oidctest.Options{AccessTokenLifetime: 2 * time.Second},
		oidctest.ServerOptions{})
	s := newSetup(t, nil, demo, p.backend("notes"))
	s.logIn("notes")
	gw := s.start()
	gw.initialize("2025-11-25")
	awaitCalls(t, gw, "read", `{}`)
	var commands sync.WaitGroup
	for _, command := range [][]string{{"login", "notes"}, {"logout", "notes"}, {"login", "notes"},
		{"check"}} {
		commands.Go(func() {
			for range 4 {
				r := s.run(command...)
				if strings.Contains(r.err, "cannot be read") || strings.Contains(r.err, "panic") {
					t.Errorf("%q: %s", command, r.err)
				}
			}
		})
	}
	commands.Wait()
	s.logIn("notes")
	awaitCalls(t, gw, "read", `{}`)
	if m := callTool(gw, "now", `{}`); m.Result == nil {
		t.Errorf("the other backend: %s", m.Raw)
	}
}
