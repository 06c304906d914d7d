package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/lazy"
	"mcpgateway/internal/weburl"
)

// Auth configures the access over HTTP.
type Auth struct {
	// Tokens are bearer tokens. Each token gives access. If there are no tokens, and OAuth is not
	// set, every client has access.
	Tokens []Token `koanf:"tokens"`
	// PublicURL is the http or https URL under which browsers reach the HTTP server, for the pages
	// of logins: "" = the URL of the listener.
	PublicURL string              `koanf:"public_url"`
	OAuth     AuthorizationServer `koanf:"oauth"`
	// TokenVariable is the variable whose value is the first token; "" = there is no token, or the
	// token is not exactly the value of one variable.
	TokenVariable string `koanf:"-"`
}

// A Token is a bearer token for clients. In the file it is a mapping with these keys, or only the
// text of the token.
type Token struct {
	// Name is the name of the holder in logs and audit records: a letter, followed by letters,
	// digits and . _ @ -, at most 64 characters, unique. "" = the token has a number instead.
	Name string `koanf:"name"`
	// Text is the token: at least 16 characters, all visible ASCII; or AutoToken.
	Text string `koanf:"token"`
	// Profile is the name of the profile of the holder; "" = none.
	Profile string `koanf:"profile"`
	// Expires is the time from which the token is refused; zero = never.
	Expires time.Time `koanf:"expires" json:",omitzero"`
	// Rate limits the requests of the holder, over all of its sessions.
	Rate Rate `koanf:"rate" json:",omitzero"`
}

// AutoToken represents a token that the gateway generates and stores in the state directory.
const AutoToken = "auto"

// minTokenLength is the minimum number of characters of a token. A shorter token can be guessed, or
// is probably a password that a person has chosen.
const minTokenLength = 16

var visibleASCII = lazy.Regexp(`^[!-~]+$`)

// IsToken reports whether text is a valid token.
func IsToken(text string) bool {
	return len(text) >= minTokenLength && visibleASCII().MatchString(text)
}

// AutoToken returns the index of the token AutoToken; -1 = there is none.
func (a *Auth) AutoToken() int {
	for i, t := range a.Tokens {
		if t.Text == AutoToken {
			return i
		}
	}
	return -1
}

// tokenNameForm describes the form of a token's name.
const tokenNameForm = "must begin with a letter, and have letters, digits and . _ @ - only, " +
	"at most 64 of them"

var tokenName = lazy.Regexp(`^[A-Za-z][A-Za-z0-9._@-]{0,63}$`)

// tokens checks the tokens. Its errors do not contain a token.
func (c *checker) tokens(cfg *Config) {
	const hint = "openssl rand -hex 32 makes a good one; auto has the gateway make one"
	texts, names := make(map[string]int), make(map[string]bool)
	for i, t := range cfg.Auth.Tokens {
		item := fmt.Sprintf("auth.tokens[%d]", i)
		at := c.tokenPath(i)
		first, again := texts[t.Text]
		switch {
		case c.reported[item] || c.reported[at]:
		case t.Text == "" && at != item && !c.isGiven(at):
			c.fail(item, "requires token", hint)
		case t.Text == "":
			c.fail(at, "is empty", hint)
		case !visibleASCII().MatchString(t.Text):
			c.fail(at, "must consist of visible ASCII characters, without spaces", hint)
		case len(t.Text) < minTokenLength && t.Text != AutoToken:
			c.fail(at, fmt.Sprintf("must have at least %d characters, or it can be guessed",
				minTokenLength), hint)
		case again:
			c.fail(at, fmt.Sprintf("is the same as auth.tokens[%d]", first),
				"give each client its own, or leave one out")
		default:
			texts[t.Text] = i
		}
		c.tokenName(t.Name, item+".name", names)
		c.rate(t.Rate, item+".rate")
		if c.isGiven(item + ".profile") {
			c.profile(cfg, t.Profile, item+".profile")
		}
	}
}

// tokenPath returns the path of the text of a token: of its key token, or of the item if the token
// is only a text.
func (c *checker) tokenPath(i int) string {
	item := fmt.Sprintf("auth.tokens[%d]", i)
	for _, f := range fields(tokenType) {
		if c.isGiven(joinPath(item, f.key)) {
			return item + ".token"
		}
	}
	return item
}

// tokenName checks the name of a token. names contains the names of the previous tokens.
func (c *checker) tokenName(name, at string, names map[string]bool) {
	switch {
	case c.reported[at] || !c.isGiven(at):
	case !tokenName().MatchString(name):
		c.fail(at, tokenNameForm+c.not(at), "")
	case names[name]:
		c.fail(at, "is the name of another token", "give each token its own name")
	default:
		names[name] = true
	}
}

// expiredTokens returns one warning for each token that is refused because it has expired at the
// time now.
func (c *checker) expiredTokens(tokens []Token, now time.Time) (all []string) {
	for i, t := range tokens {
		if t.Expires.IsZero() || now.Before(t.Expires) {
			continue
		}
		e := c.errorAt(fmt.Sprintf("auth.tokens[%d].expires", i))
		e.Problem = "the token has expired, and is refused: replace it, or remove it"
		all = append(all, e.Error())
	}
	return all
}

// parseTime parses a time in the form of RFC 3339, or a date, which stands for the end of the day
// in UTC.
func parseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	day, err := time.Parse(time.DateOnly, strings.TrimSpace(text))
	if err != nil {
		return time.Time{}, errors.New("must be " + expectedForm(timeType))
	}
	return day.AddDate(0, 0, 1), nil
}

// An AuthorizationServer is the server whose access tokens give access. Issuer and Audience are
// both set or both empty; empty = no access tokens are accepted.
type AuthorizationServer struct {
	// Issuer is the identifier of the authorization server: an https URL, or an http URL with a
	// loopback address, without query and fragment.
	Issuer string `koanf:"issuer"`
	// Audience is the URI of the gateway, for which clients request tokens: an http or https URL
	// without query and fragment.
	Audience string   `koanf:"audience"`
	Scopes   []string `koanf:"scopes"` // required scopes
	// AllowPrivate permits endpoints at private addresses in the metadata of the issuer, in
	// addition to those at its own origin.
	AllowPrivate  bool          `koanf:"allow_private" json:",omitempty"`
	Introspection Introspection `koanf:"introspection"`
	// Profiles give profiles to access tokens. A token gets the profiles of all items that apply.
	// If there are items and none applies, the token is refused.
	Profiles []OAuthProfile `koanf:"profiles" json:",omitempty"`
}

// An OAuthProfile gives a profile to access tokens with a scope, or with a value of a claim.
// Without a scope and a claim it applies to every access token.
type OAuthProfile struct {
	Scope string `koanf:"scope"`
	// Claim is the name of a claim, or the names of a claim and of members in it, joined by dots.
	Claim string `koanf:"claim"`
	// Value is the value of the claim, or one of its values if the claim is a list.
	Value   string `koanf:"value"`
	Profile string `koanf:"profile"`
}

// Introspection contains the credentials of the gateway for the introspection of access tokens that
// are not JWTs. Both are set or both empty; empty = only JWTs are accepted.
type Introspection struct {
	ClientID     string `koanf:"client_id"`
	ClientSecret string `koanf:"client_secret"`
}

// IsSet reports whether access tokens are accepted.
func (o *AuthorizationServer) IsSet() bool { return o.Issuer != "" }

// RequiresToken reports whether clients need a token, of either kind.
func (a *Auth) RequiresToken() bool { return len(a.Tokens) > 0 || a.OAuth.IsSet() }

// authorizationServer checks the section auth.oauth.
func (c *checker) authorizationServer(cfg *Config) {
	const at = "auth.oauth"
	o := cfg.Auth.OAuth
	c.issuer(o.Issuer, at+".issuer")
	c.audience(o.Audience, at+".audience")
	c.both(at+".issuer", o.Issuer, at+".audience", o.Audience,
		"issuer is the authorization server, audience the URL of the gateway for clients")
	for i, scope := range o.Scopes {
		item := fmt.Sprintf("%s.scopes[%d]", at, i)
		switch {
		case c.reported[item]:
		case c.scope(scope, item):
		case scope == "offline_access":
			c.fail(item, "offline_access is not a scope of the gateway: "+
				"it concerns refresh tokens of the client only", "remove it")
		case slices.Index(o.Scopes, scope) < i:
			c.fail(item, "is a duplicate", "remove it")
		}
	}
	id, secret := o.Introspection.ClientID, o.Introspection.ClientSecret
	c.both(at+".introspection.client_id", id, at+".introspection.client_secret", secret,
		"register a client for the gateway at the authorization server")
	c.oauthProfiles(cfg, at+".profiles")
	for _, path := range []string{"scopes", "introspection", "profiles"} {
		if c.isGiven(at+"."+path) && o.Issuer == "" && !c.reported[at+".issuer"] &&
			(len(o.Scopes) > 0 || id != "" || len(o.Profiles) > 0) {
			c.fail(at+"."+path, "requires "+at+".issuer", "")
			break
		}
	}
}

// scope adds an error if a value is not a scope, unless there is one for the key already. It
// reports whether it has added one.
func (c *checker) scope(scope, at string) (failed bool) {
	if scopeToken().MatchString(scope) || c.reported[at] {
		return false
	}
	c.fail(at, "is not a scope: a scope has no space, quote or backslash", "")
	return true
}

// oauthProfiles checks the profiles of access tokens.
func (c *checker) oauthProfiles(cfg *Config, at string) {
	for i, p := range cfg.Auth.OAuth.Profiles {
		item := fmt.Sprintf("%s[%d]", at, i)
		if c.reported[item] {
			continue
		}
		switch {
		case p.Scope != "" && p.Claim != "":
			c.fail(item+".claim", "cannot be combined with scope", "write two items")
		case p.Scope != "" && c.scope(p.Scope, item+".scope"):
		case (p.Claim == "") != (p.Value == ""):
			c.both(item+".claim", p.Claim, item+".value", p.Value,
				"write it like claim: groups, value: admins")
		}
		if p.Profile == "" && !c.isGiven(item+".profile") {
			c.fail(item, "requires profile", "")
		} else {
			c.profile(cfg, p.Profile, item+".profile")
		}
	}
}

// both fails if exactly one of two values is set.
func (c *checker) both(path, value, other, otherValue, hint string) {
	switch {
	case (value == "") == (otherValue == "") || c.reported[path] || c.reported[other]:
	case value != "":
		c.fail(path, "requires "+other, hint)
	default:
		c.fail(other, "requires "+path, hint)
	}
}

func (c *checker) issuer(issuer, at string) {
	if issuer == "" || c.reported[at] {
		return
	}
	u, err := url.Parse(issuer)
	switch {
	case err != nil || !isPlainURL(u):
		c.fail(at, "must be an https URL without query and fragment"+c.not(at),
			"write it exactly as the authorization server does, including a slash at the end")
		c.reported[at] = true
	case u.Scheme == "http" && !weburl.IsLoopback(u.Hostname()):
		c.fail(at, "must be an https URL: over http anybody on the way could replace its keys",
			"http is allowed for loopback addresses only")
		c.reported[at] = true
	}
}

func (c *checker) audience(audience, at string) {
	if audience == "" || c.reported[at] {
		return
	}
	if u, err := url.Parse(audience); err != nil || !isPlainURL(u) ||
		u.Host != strings.ToLower(u.Host) {
		c.fail(at, "must be an http or https URL, with its host in lowercase, "+
			"without query and fragment"+c.not(at),
			"write the URL that clients use, like https://gateway.example/mcp")
		c.reported[at] = true
	}
}

// isPlainURL reports whether u is an absolute http or https URL that consists of scheme, host and
// path, of visible ASCII characters.
func isPlainURL(u *url.URL) bool {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	text := u.String()
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		text == plain.String() && visibleASCII().MatchString(text) &&
		!strings.ContainsAny(text, `"\`)
}
