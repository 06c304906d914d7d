package principal

import (
	"crypto/sha256"
	"strings"
	"testing"

	"mcpgateway/internal/quota"
)

// No two identities have the same key, even if their names are chosen to look alike.
func TestKeysAreUnique(t *testing.T) {
	sum := func(text string) TokenIdentity {
		return TokenIdentity{Sum: sha256.Sum256([]byte(text))}
	}
	owners := map[string]string{}
	for what, p := range map[string]*Principal{
		"nobody":                     nil,
		"token a":                    FromToken(TokenIdentity{Name: "a"}),
		"token b":                    FromToken(TokenIdentity{Name: "b"}),
		"unnamed token":              FromToken(sum("a")),
		"another unnamed token":      FromToken(sum("b")),
		"subject a":                  FromSubject(Subject{Issuer: "https://i", ID: "a"}),
		"client a":                   FromSubject(Subject{Issuer: "https://i", ID: "a", IsClient: true}),
		"subject of another issuer":  FromSubject(Subject{Issuer: "https://i2", ID: "a"}),
		"issuer and subject, moved":  FromSubject(Subject{Issuer: "https://i2a", ID: ""}),
		"subject with a token's key": FromSubject(Subject{Issuer: "https://i", ID: "token:a"}),
		"long subject":               FromSubject(Subject{ID: strings.Repeat("x", 1000)}),
		"longer subject":             FromSubject(Subject{ID: strings.Repeat("x", 1001)}),
		"subject with a line break":  FromSubject(Subject{ID: "a\n"}),
		"subject with another one":   FromSubject(Subject{ID: "a\r"}),
	} {
		key := p.Key()
		if other, ok := owners[key]; ok {
			t.Errorf("%s and %s have the key %q", what, other, key)
		}
		owners[key] = what
		if len(key) > 128 || strings.ContainsAny(key, "\r\n ") {
			t.Errorf("%s: the key is %q", what, key)
		}
	}
	// Numbers, profiles and scopes are no part of the identity: the key stays after a restart.
	a := TokenIdentity{Name: "a", Number: 1, Profile: "p", Only: true}
	if !FromToken(a).Is(FromToken(TokenIdentity{Name: "a", Number: 2})) {
		t.Error("the key depends on more than the name")
	}
}

// The id of a subject is untrusted: what a log must not contain is replaced, and long text is cut.
// Different subjects keep different names.
func TestSubjectNames(t *testing.T) {
	name := func(id string) string { return FromSubject(Subject{Issuer: "i", ID: id}).Name() }
	for id, want := range map[string]string{
		"alice":               "oauth:alice",
		"Zoë Müller":          "oauth:Zoë Müller",
		"a\nlevel=ERROR":      "oauth:a?level=ERROR~",
		"a\x1b[31m\x00\u202e": "oauth:a?[31m??~",
		"\xff":                "oauth:?~",
	} {
		if got := name(id); got != want && !(strings.HasSuffix(want, "~") &&
			strings.HasPrefix(got, want) && len(got) == len(want)+8) {
			t.Errorf("%q has the name %q", id, got)
		}
	}
	long := strings.Repeat("ü", 500)
	if got := name(long); len(got) > maxSubjectName+32 || got == name(long+"x") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
	if name("a\n") == name("a\r") {
		t.Error("two subjects have one name")
	}
	if got := FromToken(TokenIdentity{Number: 3}).Name(); got != "3" {
		t.Errorf("the third token has the name %q", got)
	}
}

func TestAcquireShare(t *testing.T) {
	one, two, three := FromToken(TokenIdentity{Name: "1"}), FromToken(TokenIdentity{Name: "2"}),
		FromToken(TokenIdentity{Name: "3"})
	var n quota.Counter[string]
	acquire := func(p *Principal, want bool) {
		t.Helper()
		if got := p.AcquireShare(&n, 5); got != want {
			t.Errorf("%q: %t", p.Name(), got)
		}
	}
	for range 3 {
		acquire(one, true)
	}
	acquire(one, false)
	acquire(two, true)
	acquire(two, true)
	acquire(two, false) // the total limit is five
	acquire(three, false)
	n.Release(one.Key())
	acquire(three, true)
	acquire(one, false)
	for _, p := range []*Principal{one, one, two, two, three} {
		n.Release(p.Key())
	}
	// Without authentication, and with a single token, there is one principal.
	for _, p := range []*Principal{nil, FromToken(TokenIdentity{Name: "1", Only: true})} {
		for range 5 {
			acquire(p, true)
		}
		acquire(p, false)
		for range 5 {
			n.Release(p.Key())
		}
	}
	if n.Total() != 0 || n.Keys() != 0 {
		t.Errorf("%d items of %d principals are left", n.Total(), n.Keys())
	}
}

// A name is exact only if no other principal can have it in another run. An id that looks like a
// cleaned one gets a hash of its own, so that nobody can choose the name of another subject.
func TestExactNames(t *testing.T) {
	subject := func(id string) *Principal { return FromSubject(Subject{Issuer: "i", ID: id}) }
	cleaned := strings.TrimPrefix(subject("a\n").Name(), "oauth:")
	for _, p := range []*Principal{nil, FromToken(TokenIdentity{Number: 1}), subject("a\n"),
		subject(cleaned), subject(strings.Repeat("x", 500))} {
		if got := p.ExactName(); got != "" {
			t.Errorf("%s has the exact name %s", p.Name(), got)
		}
	}
	for _, p := range []*Principal{FromToken(TokenIdentity{Name: "a", Number: 1}), subject("a"),
		subject("a~1"), subject("~"), subject("a").WithProfile("x")} {
		if p.ExactName() != p.Name() {
			t.Errorf("%s has no exact name", p.Name())
		}
	}
	if subject(cleaned).Name() == subject("a\n").Name() {
		t.Error("a subject has the name of another one")
	}
}
