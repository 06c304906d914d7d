package resourceserver

import (
	"errors"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/oidctest"
)

// A token has the profiles of all rules that apply to it, whatever the form of the claim is.
func TestProfileRules(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, func(o *Options) {
		o.Profiles = []ProfileSelector{
			{Scope: "read", Profile: "reader"},
			{Claim: "groups", Value: "admins", Profile: "admin"},
			{Claim: "realm_access.roles", Value: "ops", Profile: "ops"},
			{Claim: "https://team.example/level", Value: "3", Profile: "level"},
			{Claim: "staff", Value: "true", Profile: "staff"},
		}
	})
	for name, tt := range map[string]struct {
		scopes []string
		claims map[string]any
		want   string // "" = refused
	}{
		"scope":            {[]string{"x", "read"}, nil, "reader"},
		"part of a scope":  {[]string{"reader", "rea"}, nil, ""},
		"text":             {nil, map[string]any{"groups": "admins"}, "admin"},
		"list":             {nil, map[string]any{"groups": []any{1, nil, "x", "admins"}}, "admin"},
		"text with spaces": {nil, map[string]any{"groups": "users admins"}, ""},
		"nested list":      {nil, map[string]any{"groups": []any{[]string{"admins"}}}, ""},
		"other case":       {nil, map[string]any{"Groups": "admins"}, ""},
		"object":           {nil, map[string]any{"groups": map[string]any{"admins": true}}, ""},
		"null":             {nil, map[string]any{"groups": nil}, ""},
		"member": {nil, map[string]any{
			"realm_access": map[string]any{"roles": []string{"ops"}}}, "ops"},
		"claim with a dot":    {nil, map[string]any{"realm_access.roles": "ops"}, "ops"},
		"member of a list":    {nil, map[string]any{"realm_access": []string{"ops"}}, ""},
		"name is a URL":       {nil, map[string]any{"https://team.example/level": 3}, "level"},
		"other number":        {nil, map[string]any{"https://team.example/level": 3.5}, ""},
		"boolean":             {nil, map[string]any{"staff": true}, "staff"},
		"other boolean":       {nil, map[string]any{"staff": false}, ""},
		"several rules apply": {[]string{"read"}, map[string]any{"groups": "admins"}, "admin,reader"},
		"none":                {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			token := p.IssueToken(oidctest.TokenSpec{Scopes: tt.scopes, Claims: tt.claims})
			for range 2 { // verified, and cached
				got, err := v.Verify(t.Context(), token, "")
				if tt.want != "" {
					if err != nil || got.Principal.ProfileKey() != tt.want {
						t.Errorf("%v, %v, want %s", got.Principal.ProfileKey(), err, tt.want)
					}
					continue
				}
				refused, ok := errors.AsType[*NoProfileError](err)
				if !ok || got.Principal != nil ||
					!strings.HasSuffix(refused.Error(), "have a profile: read") {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
}

// A rule without a scope and a claim applies to every token.
func TestProfileOfEveryToken(t *testing.T) {
	p, v := newPair(t, oidctest.Options{}, func(o *Options) {
		o.Profiles = []ProfileSelector{{Profile: "all"}, {Scope: "read", Profile: "reader"}}
	})
	for scope, want := range map[string]string{"x": "all", "read": "all,reader"} {
		got := wantValid(t, v, p.IssueToken(oidctest.TokenSpec{Scopes: []string{scope}}))
		if got.Principal.ProfileKey() != want {
			t.Errorf("%s: %s", scope, got.Principal.ProfileKey())
		}
	}
}

// The rules also apply to tokens that are introspected.
func TestProfileOfIntrospectedToken(t *testing.T) {
	p := oidctest.New(t, oidctest.Options{Opaque: true, Audience: []string{gatewayURL}})
	o := Options{Issuer: p.Issuer(), Audience: gatewayURL,
		Profiles: []ProfileSelector{{Scope: "read", Profile: "reader"}}}
	o.ClientID, o.ClientSecret = p.IntrospectionClient()
	v := newVerifier(t, o)
	got := wantValid(t, v, p.IssueToken(oidctest.TokenSpec{Scopes: []string{"read"}}))
	if got.Principal.ProfileKey() != "reader" {
		t.Errorf("%s", got.Principal.ProfileKey())
	}
	_, err := v.Verify(t.Context(), p.IssueToken(oidctest.TokenSpec{Scopes: []string{"x"}}), "")
	if _, ok := errors.AsType[*NoProfileError](err); !ok {
		t.Errorf("without the scope: %v", err)
	}
}

// A refused token gets the scope of the first rule with a scope; without one, no scope would help.
func TestNoProfileChallenge(t *testing.T) {
	v := newVerifier(t, Options{Issuer: "https://i.example", Audience: gatewayURL,
		Scopes: []string{"mcp"},
		Profiles: []ProfileSelector{{Claim: "groups", Value: "a", Profile: "p"},
			{Scope: "read", Profile: "r"}}})
	got := v.Challenge(&NoProfileError{Scopes: v.opts.profileScopes()}, "")
	if !strings.Contains(got, `error="insufficient_scope"`) ||
		!strings.Contains(got, `scope="mcp read"`) {
		t.Error(got)
	}
	if got := v.Challenge(&NoProfileError{}, ""); strings.Contains(got, "insufficient_scope") ||
		!strings.Contains(got, `scope="mcp"`) {
		t.Error(got)
	}
	if got := string(v.Metadata("")); !strings.Contains(got, `"scopes_supported":["mcp","read"]`) {
		t.Error(got)
	}
}

// A Verifier is kept by a reload only if none of its options has changed.
func TestVerifierEqual(t *testing.T) {
	all := Options{Issuer: "https://i.example", Audience: gatewayURL, Scopes: []string{"mcp"},
		Profiles: []ProfileSelector{{Profile: "p"}}, AllowPrivate: true, ClientID: "c",
		ClientSecret: "s"}
	v := newVerifier(t, all)
	if !v.Equal(all) {
		t.Error("not equal to its own options")
	}
	for name, change := range map[string]func(*Options){
		"issuer":        func(o *Options) { o.Issuer = "" },
		"audience":      func(o *Options) { o.Audience = "" },
		"scopes":        func(o *Options) { o.Scopes = nil },
		"profiles":      func(o *Options) { o.Profiles = nil },
		"allow_private": func(o *Options) { o.AllowPrivate = false },
		"client_id":     func(o *Options) { o.ClientID = "" },
		"client_secret": func(o *Options) { o.ClientSecret = "" },
	} {
		o := all
		if change(&o); v.Equal(o) {
			t.Errorf("equal with another %s", name)
		}
	}
}
