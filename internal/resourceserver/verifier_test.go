package resourceserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/mcptest/oidctest"
)

const gatewayURL = "https://gateway.example/mcp"

// newPair starts a provider and returns it with a Verifier for its tokens. The options may be nil.
func newPair(t testing.TB, o oidctest.Options, change func(*Options)) (
	*oidctest.Provider, *Verifier) {
	o.Audience = []string{gatewayURL}
	p := oidctest.New(t, o)
	opts := Options{Issuer: p.Issuer(), Audience: gatewayURL}
	if change != nil {
		change(&opts)
	}
	return p, newVerifier(t, opts)
}

func newVerifier(t testing.TB, o Options) *Verifier {
	v := New(o)
	t.Cleanup(func() {
		v.cancel()
		v.provider.client.CloseIdleConnections()
	})
	return v
}

// wantInvalid verifies a token that is not valid. The reason must contain want, and nothing of the
// token.
func wantInvalid(t *testing.T, v *Verifier, token, want string) {
	t.Helper()
	got, err := v.Verify(t.Context(), token, "")
	invalid, ok := errors.AsType[*InvalidTokenError](err)
	if !ok || !strings.Contains(invalid.Reason, want) || got.Principal != nil {
		t.Fatalf("want an error with %q, got %v, %v", want, got, err)
	}
	for part := range strings.SplitSeq(token, ".") {
		if len(part) > 8 && strings.Contains(invalid.Reason, part) {
			t.Errorf("the error contains a part of the token: %s", invalid.Reason)
		}
	}
}

func wantValid(t testing.TB, v *Verifier, token string) VerifiedToken {
	t.Helper()
	got, err := v.Verify(t.Context(), token, "")
	if err != nil || got.Principal == nil {
		t.Fatalf("a valid token: %v, %v", got, err)
	}
	return got
}

// A JWT of the configured issuer is valid, with each of the three algorithms. Its subject and
// scopes are those of the principal.
func TestJWT(t *testing.T) {
	for _, alg := range []string{oidctest.RS256, oidctest.ES256, oidctest.EdDSA} {
		t.Run(alg, func(t *testing.T) {
			p, v := newPair(t, oidctest.Options{Alg: alg, Path: "/tenant"}, nil)
			token := p.IssueToken(oidctest.TokenSpec{User: "ann", Scopes: []string{"a", "b"},
				Lifetime: time.Hour})
			for range 2 {
				got := wantValid(t, v, token)
				left := time.Until(got.Expires)
				if got.Principal.Name() != "oauth:ann" ||
					fmt.Sprint(got.Principal.Scopes()) != "[a b]" || left < 59*time.Minute ||
					left > time.Hour+clockSkew {
					t.Errorf("%+v, valid for %v", got.Principal, left)
				}
			}
			again := wantValid(t, v, p.IssueToken(oidctest.TokenSpec{User: "ann"}))
			other := wantValid(t, v, p.IssueToken(oidctest.TokenSpec{User: "bob"}))
			first := wantValid(t, v, token)
			if !first.Principal.Is(again.Principal) || first.Principal.Is(other.Principal) {
				t.Error("the identity is not that of the subject")
			}
			if n := p.Counts()[oidctest.KeysEndpoint]; n != 1 {
				t.Errorf("%d requests for keys", n)
			}
		})
	}
}

// Each of these tokens is refused with its own reason, before and after a valid one.
func TestWrongClaims(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, nil)
	minute := func(n float64) int64 {
		return time.Now().Add(time.Duration(n * float64(time.Minute))).Unix()
	}
	for name, tt := range map[string]struct {
		claims map[string]any
		want   string // "" = valid
	}{
		"wrong issuer":           {map[string]any{"iss": "https://evil.example"}, "not issued by"},
		"issuer with a slash":    {map[string]any{"iss": p.Issuer() + "/"}, "not issued by"},
		"no issuer":              {map[string]any{"iss": nil}, "not issued by"},
		"issuer in other case":   {map[string]any{"iss": nil, "ISS": p.Issuer()}, "not issued by"},
		"wrong audience":         {map[string]any{"aud": []string{"https://x/mcp"}}, "another audience"},
		"audience with a slash":  {map[string]any{"aud": gatewayURL + "/"}, "another audience"},
		"no audience":            {map[string]any{"aud": nil}, "no aud"},
		"audience as a string":   {map[string]any{"aud": gatewayURL}, ""},
		"one of the audiences":   {map[string]any{"aud": []string{"x", gatewayURL}}, ""},
		"audience of wrong type": {map[string]any{"aud": 1}, "claim aud has a wrong type"},
		"expired":                {map[string]any{"exp": minute(-1.2)}, "has expired"},
		"expired within 60 s":    {map[string]any{"exp": minute(-0.8)}, ""},
		"expired in 1970":        {map[string]any{"exp": 0}, "has expired"},
		"no expiry":              {map[string]any{"exp": nil}, "no exp"},
		"expiry as a string":     {map[string]any{"exp": "2999-01-01"}, "claim exp has a wrong type"},
		"expiry with a fraction": {map[string]any{"exp": float64(minute(5)) + 0.5}, ""},
		"endless expiry":         {map[string]any{"exp": 1e300}, ""},
		"not yet valid":          {map[string]any{"nbf": minute(1.2)}, "not valid yet"},
		"valid within 60 s":      {map[string]any{"nbf": minute(0.8)}, ""},
		"subject of wrong type":  {map[string]any{"sub": 7}, "claim sub has a wrong type"},
		"no subject":             {map[string]any{"sub": nil, "client_id": nil, "azp": nil}, "no subject"},
		"client without subject": {map[string]any{"sub": nil, "client_id": "ci"}, ""},
		"scopes as a list":       {map[string]any{"scope": []string{"a"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			token := p.IssueToken(oidctest.TokenSpec{Claims: tt.claims})
			if tt.want == "" {
				wantValid(t, v, token)
				return
			}
			wantInvalid(t, v, token, tt.want)
			wantValid(t, v, p.IssueToken(oidctest.TokenSpec{}))
			wantInvalid(t, v, token, tt.want)
		})
	}
	if n := p.Counts()[oidctest.KeysEndpoint]; n != 1 {
		t.Errorf("%d requests for keys", n)
	}
	got := wantValid(t, v, p.IssueToken(oidctest.TokenSpec{
		Claims: map[string]any{"sub": nil, "client_id": "ci\n"}}))
	if name := got.Principal.Name(); !strings.HasPrefix(name, "oauth-client:ci?~") {
		t.Errorf("a client has the name %q", name)
	}
}

func TestWrongSignature(t *testing.T) {
	p, v := newPair(t, oidctest.Options{Alg: oidctest.RS256}, nil)
	wantInvalid(t, v, p.IssueToken(oidctest.TokenSpec{Forgery: oidctest.SignedByOther}),
		"signature of the access token is not valid")
	valid := p.IssueToken(oidctest.TokenSpec{})
	wantValid(t, v, valid)
	cut := strings.LastIndexByte(valid, '.') + 1
	for _, token := range []string{valid[:cut], valid[:cut] + "AAAA", valid[:cut-2] + valid[cut-1:],
		strings.Replace(valid, ".", ".e30", 1)} {
		if got, err := v.Verify(t.Context(), token, ""); err == nil {
			t.Errorf("accepted: %v", got)
		}
	}
}

func TestAlgNone(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, nil)
	wantInvalid(t, v, p.IssueToken(oidctest.TokenSpec{Forgery: oidctest.Unsigned}),
		"not signed with RS256, ES256 or EdDSA")
}

func TestHS256WithPublicKey(t *testing.T) {
	for _, alg := range []string{oidctest.RS256, oidctest.ES256} {
		p, v := newPair(t, oidctest.Options{Alg: alg}, nil)
		wantInvalid(t, v, p.IssueToken(oidctest.TokenSpec{Forgery: oidctest.SignedHMAC}),
			"not signed with RS256, ES256 or EdDSA")
	}
}

// Ten thousand tokens with unknown keys cause a few requests to the authorization server, and other
// tokens are verified meanwhile.
func TestUnknownKeyTenThousandTimes(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, nil)
	began := time.Now()
	valid := p.IssueToken(oidctest.TokenSpec{})
	forged := p.IssueToken(oidctest.TokenSpec{Forgery: oidctest.UnknownKeyID})
	var all sync.WaitGroup
	var mu sync.Mutex
	reasons := map[string]int{}
	for n := range 20 {
		all.Go(func() {
			token := forged
			if n == 0 {
				token = p.IssueToken(oidctest.TokenSpec{Forgery: oidctest.UnknownKeyID})
			}
			for range 500 {
				_, err := v.Verify(t.Context(), token, "")
				mu.Lock()
				reasons[fmt.Sprintf("%T", err)]++
				mu.Unlock()
				if err == nil || !strings.Contains(err.Error(), "a key that "+p.Issuer()) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	for range 50 {
		wantValid(t, v, valid)
	}
	all.Wait()
	limit := 2 + unknownKeyBurst + int(time.Since(began)/unknownKeyInterval)
	for e, n := range p.Counts() {
		if n > limit {
			t.Errorf("%s: %d requests, want at most %d", e, n, limit)
		}
	}
	if reasons["*resourceserver.InvalidTokenError"] < unknownKeyBurst || len(reasons) > 2 {
		t.Errorf("%v", reasons)
	}
	// The keys are read again in the background, so that a new key is found even then.
	if err := p.RotateKeys(oidctest.ES256); err != nil {
		t.Fatal(err)
	}
	if _, err := v.provider.load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{}))
}

// A token that is signed with a new key is accepted at once. A key that is no longer published is
// not accepted any more, also for tokens that were verified with it.
func TestKeyRotation(t *testing.T) {
	p, v := newPair(t, oidctest.Options{Alg: oidctest.RS256}, nil)
	old := p.IssueToken(oidctest.TokenSpec{User: "old"})
	wantValid(t, v, old)
	for _, alg := range []string{oidctest.ES256, oidctest.EdDSA} {
		if err := p.RotateKeys(alg); err != nil {
			t.Fatal(err)
		}
		wantValid(t, v, p.IssueToken(oidctest.TokenSpec{}))
		wantValid(t, v, old)
	}
	if n := p.Counts()[oidctest.KeysEndpoint]; n != 3 {
		t.Errorf("%d requests for keys", n)
	}
	p.RetireKeys()
	current := p.IssueToken(oidctest.TokenSpec{})
	wantValid(t, v, current)
	if _, err := v.provider.load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	wantInvalid(t, v, old, "a key that "+p.Issuer()+" has not published")
	wantValid(t, v, current)
}

func TestLongToken(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, nil)
	wantInvalid(t, v, strings.Repeat("x", 1<<20), "longer than 16384 bytes")
	wantInvalid(t, v, p.IssueToken(oidctest.TokenSpec{User: strings.Repeat("x", 1<<20)}), "longer")
	if n := len(p.Counts()); n != 0 {
		t.Errorf("requests to %d endpoints", n)
	}
}

func TestMalformedTokens(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, nil)
	part := func(s string) string { return encode([]byte(s)) }
	for token, want := range map[string]string{
		"x":   "not a JWT",
		"a.b": "not a JWT",
		"..":  "not a JWT",
		part(`{"alg":"RS256"}`) + ".." + part("x"):                                      "malformed",
		part(`{"alg":"RS256"`) + ".e30." + part("x"):                                    "malformed",
		part(`{"alg":"RS256"}`) + ".!." + part("x"):                                     "malformed",
		part(`{"alg":"RS256"}`) + "." + part("[]") + "." + part("x"):                    "malformed",
		part(`{"alg":"RS256"}`) + "." + part("null") + "." + part("x"):                  "malformed",
		part(`{"alg":"RS256","typ":"logout+jwt"}`) + "." + part("{}") + "." + part("x"): "typ",
		part(`{"alg":"RS256","alg":"none"}`) + "." + part("{}") + "." + part("x"):       "malformed",
		part(`{"alg":["RS256"]}`) + "." + part("{}") + "." + part("x"):                  "",
		part("{"+strings.Repeat(`"a":[`, 2000)) + ".." + part("x"):                      "malformed",
	} {
		wantInvalid(t, v, token, want)
	}
	if n := len(p.Counts()); n != 0 {
		t.Errorf("requests to %d endpoints", n)
	}
}

// A valid token without all required scopes is refused with all of them.
func TestScopes(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, func(o *Options) {
		o.Scopes = []string{"read", "tools"}
	})
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{Scopes: []string{"tools", "x", "read"}}))
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{
		Claims: map[string]any{"scope": nil, "scp": []string{"read", "tools"}}}))
	for _, scopes := range [][]string{nil, {"read"}, {"READ", "tools"}, {"read tools2"}} {
		token := p.IssueToken(oidctest.TokenSpec{Scopes: scopes})
		for range 2 { // the second one is cached
			_, err := v.Verify(t.Context(), token, "")
			missing, ok := errors.AsType[*ScopeError](err)
			if !ok || fmt.Sprint(missing.Required) != "[read tools]" {
				t.Errorf("%q: %v", scopes, err)
			}
		}
	}
}

// A token for the URI of a profile is valid at the path of this profile only, in any order.
func TestProfileAudience(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, nil)
	issue := func(audience ...string) string {
		return p.IssueToken(oidctest.TokenSpec{Audience: audience})
	}
	all, reader := issue(gatewayURL), issue(gatewayURL+"/reader")
	both := issue(gatewayURL+"/writer", gatewayURL+"/reader")
	for range 2 {
		for _, tt := range []struct {
			token, profile string
			ok             bool
		}{
			{reader, "", false}, {reader, "reader", true}, {reader, "writer", false},
			{reader, "", false}, {all, "", true}, {all, "reader", true}, {both, "reader", true},
			{both, "writer", true}, {both, "", false}, {both, "other", false},
			{issue(gatewayURL + "x"), "", false}, {issue("/reader"), "reader", false},
		} {
			_, err := v.Verify(t.Context(), tt.token, tt.profile)
			if (err == nil) != tt.ok {
				t.Errorf("%q: %v", tt.profile, err)
			}
			if err != nil && !strings.Contains(err.Error(), "another audience; request one with "+
				"resource="+v.opts.resource(tt.profile)) && tt.profile != "reader" {
				t.Errorf("%q: %v", tt.profile, err)
			}
		}
	}
}

// The number of verified tokens that are cached is bounded.
func TestCachedTokensLimit(t *testing.T) {
	c := tokenCache{max: 100}
	sum := func(n int) (s [32]byte) {
		s[0], s[1] = byte(n), byte(n>>8)
		return s
	}
	valid := VerifiedToken{Expires: time.Now().Add(time.Hour)}
	for n := range 1000 {
		c.add(sum(n), &cachedToken{VerifiedToken: valid, until: valid.Expires})
		if n := c.len(); n > 100 {
			t.Fatalf("%d cached tokens", n)
		}
		if got, err := c.get(sum(n), time.Now()); got == nil || err != nil {
			t.Fatalf("token %d is not cached", n)
		}
	}
	if got, _ := c.get(sum(999), valid.Expires); got != nil || c.len() != 99 {
		t.Errorf("an expired token is cached: %v, %d", got, c.len())
	}
	v := New(Options{Issuer: "https://i", Audience: gatewayURL})
	if v.valid.max != maxCachedTokens {
		t.Errorf("%d tokens", v.valid.max)
	}
}

// Run reads the keys before the first token needs them, and ends when its context is done.
func TestRunReadsKeys(t *testing.T) {
	log, logger := mcptest.NewLog()
	p, v := newPair(t, oidctest.Options{}, func(o *Options) { o.Log = logger })
	p.SetFault(oidctest.OAuthMetadata, oidctest.Fault{Status: 503, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { v.Run(ctx) })
	await(t, func() bool { return p.Counts()[oidctest.KeysEndpoint] > 0 })
	wantValid(t, v, p.IssueToken(oidctest.TokenSpec{}))
	if n := p.Counts()[oidctest.KeysEndpoint]; n != 1 {
		t.Errorf("%d requests for keys", n)
	}
	await(t, func() bool {
		return len(log.Lines("level=WARN", "authorization server not available", "503")) == 1 &&
			len(log.Lines("level=INFO", "authorization server available")) == 1
	})
	cancel()
	run.Wait()
}

func encode(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

func await(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatal("waited too long")
		}
		<-time.After(10 * time.Millisecond)
	}
}
