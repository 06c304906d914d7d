package backends

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"unicode"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/transport/httpclient"
)

// A backendLogin is the OAuth client of a backend, and waits for somebody to log in when that is
// needed.
type backendLogin struct {
	*oauthclient.Authorization
	b        *Backend
	awaiting atomic.Bool // a goroutine runs await

	tool       catalog.Item // see loginToolName
	offersTool atomic.Bool  // the backend has needed a login, and there are pages for logins
}

// newBackendLogin returns the OAuth client of a backend, nil if the backend needs none: it has no
// URL, or a header Authorization, or Options.Logins is not set.
func newBackendLogin(b *Backend) *backendLogin {
	c, s := &b.cfg, b.set
	if s.Logins == nil || c.URL == "" || hasAuthorization(c) {
		return nil
	}
	l := &backendLogin{b: b, tool: newLoginTool(c.Name)}
	o := oauthclient.Options{
		Name: c.Name, URL: c.URL, Store: s.Logins, Log: b.outputLog,
		OnSecret: l.onSecret, OnNeedsLogin: l.onNeedsLogin, Go: b.lifetime.goWorker,
		Principal: l.owner().Key(), Command: loginCommand(c.Name, l.owner()),
		ClientID: c.OAuth.ClientID, ClientSecret: c.OAuth.ClientSecret,
		ClientMetadataURL: c.OAuth.ClientMetadataURL,
		ClientCredentials: c.OAuth.Grant == config.GrantClientCredentials,
		RedirectPort:      c.OAuth.RedirectPort,
		Scopes:            c.OAuth.Scopes, AllowPrivate: c.OAuth.AllowPrivate,
	}
	if of := b.instances.of; of == nil {
		o.TLS, _ = httpclient.ClientTLS(c.TLS).Config() // dial reports an error
	} else if of.login != nil {
		o.TLS = of.login.TLS.Clone() // no file is read, because startup.mu is held
	}
	auth, err := oauthclient.New(o)
	if err != nil {
		return nil // dial reports the error of the URL
	}
	l.Authorization = auth
	return l
}

// owner returns the principal whose login it is; nil = the gateway.
func (l *backendLogin) owner() *principal.Principal {
	in := &l.b.instances
	if in.owner == nil && in.enabled() {
		return l.b.set.LoginAs
	}
	return in.owner
}

// loginCommand returns the command with which a principal logs in to a backend.
func loginCommand(backend string, p *principal.Principal) string {
	if p.Key() != "" && p.ExactName() == "" {
		return "open the page of the gateway that a client is asked to open"
	}
	return "gateway login " + backend + principalFlag(p)
}

// approveCommand returns the command that approves the tools of a backend for a principal.
func approveCommand(backend string, p *principal.Principal) string {
	return "gateway approve " + backend + principalFlag(p)
}

// principalFlag returns the flag that names a principal; "" if it has no exact name. If the name
// has characters that a shell may interpret, which the user may have chosen, NAME stands for it.
func principalFlag(p *principal.Principal) string {
	switch name := p.ExactName(); {
	case name == "":
		return ""
	case strings.ContainsFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) &&
			!strings.ContainsRune("._@:-", r)
	}):
		return " --principal NAME"
	default:
		return " --principal " + name
	}
}

// onSecret is called with each secret of the login before its use.
func (l *backendLogin) onSecret(secret string) {
	if report := l.b.set.OnSecret; report != nil {
		report(l.secretsOwner(), secret)
	}
}

// secretsOwner returns the owner of the secrets for Options.OnSecret.
func (l *backendLogin) secretsOwner() string { return l.b.cfg.Name + " " + l.owner().Key() }

// reportUnused is called when nothing of an instance is left. It reports that the secrets of the
// principal are not used any more, unless there is another instance by now. l may be nil.
func (l *backendLogin) reportUnused() {
	if l == nil || l.b.set.OnSecretsUnused == nil {
		return
	}
	s := l.b.set
	s.startup.mu.Lock() // no instance is opened meanwhile
	defer s.startup.mu.Unlock()
	current := s.current().byName[l.b.cfg.Name]
	if current == nil || current.instances.get(l.owner().Key()) == nil {
		s.OnSecretsUnused(l.secretsOwner())
	}
}

// onNeedsLogin is called when the backend begins to need a login. The backend connects, or lists
// its entries again, as soon as somebody has logged in.
func (l *backendLogin) onNeedsLogin(why *oauthclient.LoginError) {
	l.b.log.Warn("backend needs a login", "err", why)
	l.offerTool()
	l.b.publish()
	if l.awaiting.CompareAndSwap(false, true) {
		l.b.lifetime.goWorker(l.await)
	}
}

// await waits for logins until no login is needed.
func (l *backendLogin) await(ctx context.Context) {
	for needed := true; needed; {
		if l.AwaitLogin(ctx) != nil {
			return
		}
		l.b.log.Info("somebody has logged in to the backend")
		l.completePages()
		for _, bc := range l.b.conns() {
			bc.starts.retryWithin(0)
		}
		l.b.lists.refreshAll()
		l.awaiting.Store(false)
		needed = l.NeedsLogin() != nil && l.awaiting.CompareAndSwap(false, true)
	}
}

// watchLogouts lists the tools again when somebody has logged out. If the server requires a login,
// the backend then needs one, even without a call.
func (l *backendLogin) watchLogouts(ctx context.Context) {
	for l.AwaitLogout(ctx) == nil {
		l.b.log.Info("somebody has logged out of the backend")
		l.b.lists.refreshTools()
	}
}

// completePages ends the pages of the login, at which users of clients were asked to log in.
func (l *backendLogin) completePages() {
	if complete := l.b.set.CompleteLogin; complete != nil {
		complete(l.Authorization)
	}
}

// needed returns the reason that somebody has to log in; nil = none. l may be nil.
func (l *backendLogin) needed() error {
	if l == nil {
		return nil
	}
	if why := l.NeedsLogin(); why != nil {
		return why
	}
	return nil
}

// hasAuthorization reports whether the configuration contains the credentials of a backend.
func hasAuthorization(c *config.Backend) bool {
	for name := range c.Headers {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			return true
		}
	}
	u, err := url.Parse(c.URL)
	return err == nil && u.User != nil
}
