package resourceserver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/oidctest"
)

// No text is accepted as a token, except those that the authorization server has signed; and no
// text causes a panic, or another error than the documented ones.
func FuzzVerify(f *testing.F) {
	p, v := newPair(f, oidctest.Options{}, nil)
	var signed []string
	for _, spec := range []oidctest.TokenSpec{
		{}, {Forgery: oidctest.Unsigned}, {Forgery: oidctest.SignedHMAC},
		{Forgery: oidctest.SignedByOther}, {Lifetime: -time.Hour},
		{Claims: map[string]any{"aud": 1}}, {Claims: map[string]any{"exp": 1e300}},
		{Claims: map[string]any{"scope": []any{1}}},
	} {
		token := p.IssueToken(spec)
		f.Add(token)
		if spec.Forgery == oidctest.NotForged {
			// The last characters may have bits that do not belong to the signature.
			signed = append(signed, token[:len(token)-2])
		}
	}
	f.Add("")
	f.Add("..")
	f.Add(encode([]byte(`{"alg":"RS256","crit":["b64"],"b64":false,"jwk":{"kty":"oct"}}`)) + ".e30.e30")
	f.Fuzz(func(t *testing.T, token string) {
		got, err := v.Verify(t.Context(), token, "")
		if err == nil {
			token = strings.NewReplacer("\r", "", "\n", "").Replace(token)
			for _, prefix := range signed {
				if strings.HasPrefix(token, prefix) {
					return
				}
			}
			t.Fatalf("accepted: %+v", got)
		}
		_, isInvalid := errors.AsType[*InvalidTokenError](err)
		_, isUnavailable := errors.AsType[*UnavailableError](err)
		if !isInvalid && !isUnavailable {
			t.Fatalf("%v", err)
		}
		if challenge := v.Challenge(err, ""); strings.ContainsAny(challenge, "\r\n") {
			t.Fatalf("%q", challenge)
		}
	})
}

// Claims and introspection responses are JSON from outside.
func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"iss":"https://i","sub":"a","aud":["x"],"exp":1e9,"nbf":-1,"scope":"a b","scp":["c"]}`))
	f.Add([]byte(`{"active":true,"aud":[],"exp":null}`))
	o := &Options{Issuer: "https://i", Audience: "x"}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseClaims(text)
		if err != nil {
			return
		}
		if c.check(o, time.Now(), true) == nil && c.verified(o).Principal.Key() == "" {
			t.Fatal("no identity")
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	for _, alg := range []string{oidctest.RS256, oidctest.ES256} {
		p, v := newPair(b, oidctest.Options{Alg: alg}, nil)
		token := p.IssueToken(oidctest.TokenSpec{Scopes: []string{"read"}})
		wantValid(b, v, token)
		b.Run(alg+"/cached", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), token, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(alg+"/first", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v.valid.byKey = nil
				if _, err := v.Verify(b.Context(), token, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
