package logging

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

// The tokens of many owners do not push out the tokens in use of an owner that still exists. The
// tokens of owners that no longer exist are bounded.
func TestMaskKeepsTheTokensInUseOfEachOwner(t *testing.T) {
	var all []maskedToken
	token := func(owner, n int) maskedToken {
		return maskedToken{"backend-" + strconv.Itoa(owner), "token-" + strconv.Itoa(n)}
	}
	var owners []string
	for i := range 300 {
		owners = append(owners, token(i, 0).owner)
	}
	add := func(one maskedToken) {
		all = boundTokens(slices.Concat([]maskedToken{one}, all), owners)
	}
	for i := range 300 {
		for n := range 6 {
			add(token(i, n))
		}
	}
	for n, want := range []bool{false, false, true, true, true, true} {
		for i := range 200 {
			if slices.Contains(all, token(i, n)) != want {
				t.Fatalf("token %d of owner %d: kept %t", n, i, !want)
			}
		}
	}
	owners = owners[250:]
	for n := range maxAllTokens {
		add(token(1000+n, 1))
	}
	if want := maxAllTokens + 50*keptTokens; len(all) != want {
		t.Errorf("%d tokens, want %d", len(all), want)
	}
	if slices.Contains(all, token(249, 5)) || !slices.Contains(all, token(250, 2)) {
		t.Error("not the tokens of the owners that exist are kept")
	}
}

// The tokens of an owner that no longer exists are masked until there are too many.
func TestMaskOfFormerOwner(t *testing.T) {
	mask := NewMask()
	mask.SetTokenOwners("first", "second")
	mask.AddToken("first", "token-of-first")
	mask.SetTokenOwners("second")
	mask.AddToken("second", "token-of-second")
	mask.SetSecrets("a-secret")
	if got := mask.String("token-of-first token-of-second a-secret"); got != "*** *** ***" {
		t.Error(got)
	}
	if s := mask.secrets.Load(); !slices.Equal(s.owners, []string{"second"}) {
		t.Errorf("the owners are %q", s.owners)
	}
}

// The parts of an owner, such as the principals with a login at a backend, do not remove the tokens
// of each other, and their tokens may go when the owner no longer exists.
func TestMaskKeepsTokensOfParts(t *testing.T) {
	part := func(n int) string { return fmt.Sprint("backend notes user", n) }
	var all []maskedToken
	add := func(owner, text string, owners ...string) {
		all = boundTokens(slices.Concat([]maskedToken{{owner, text}}, all), owners)
	}
	for n := range maxAllTokens {
		add(part(n), fmt.Sprint("token ", n), "backend notes")
	}
	for n := range maxTokens {
		add("backend notes2", fmt.Sprint("other ", n), "backend notes")
	}
	if want := (maskedToken{part(0), "token 0"}); !slices.Contains(all, want) {
		t.Error("the only token of a part was removed")
	}
	for n := range maxTokens {
		add("backend mail", fmt.Sprint("mail ", n), "backend mail")
	}
	if len(all) != maxAllTokens {
		t.Errorf("%d tokens", len(all))
	}
}

// Principals that come and go do not let the number of tokens grow without a bound. The tokens of a
// principal whose connections have ended are masked until there are too many.
func TestMaskOfReleasedParts_IsBounded(t *testing.T) {
	mask := NewMask()
	mask.SetTokenOwners("backend notes")
	mask.AddToken("backend notes alice", "token-of-alice")
	for n := range maxAllTokens/2 + 10 { // each has two tokens
		user := fmt.Sprint("backend notes user", n)
		mask.AddToken(user, fmt.Sprint("access-", n))
		mask.AddToken(user, fmt.Sprint("refresh-", n))
		mask.ReleaseTokens(user)
		if got := mask.String(fmt.Sprint("access-", n)); got != "***" {
			t.Fatal(got)
		}
	}
	if n := len(mask.secrets.Load().tokens); n != maxAllTokens+1 {
		t.Errorf("%d tokens", n)
	}
	if got := mask.String("token-of-alice access-0"); got != "*** access-0" {
		t.Error(got)
	}
}
