package resourceserver

import (
	"net/url"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/oidctest"
)

func TestMetadata(t *testing.T) {
	for _, tt := range []struct {
		o          Options
		json, path string
		challenge  string
	}{
		{Options{Issuer: "https://i.example", Audience: "https://gw.example/mcp",
			Scopes: []string{"a", "b"}},
			`{"resource":"https://gw.example/mcp","authorization_servers":["https://i.example"],` +
				`"scopes_supported":["a","b"],"bearer_methods_supported":["header"]}`,
			"/mcp", `Bearer scope="a b", resource_metadata=` +
				`"https://gw.example/.well-known/oauth-protected-resource/mcp"`},
		{Options{Issuer: "https://i.example/t", Audience: "https://gw.example:8443/team/mcp"},
			`{"resource":"https://gw.example:8443/team/mcp","authorization_servers":` +
				`["https://i.example/t"],"bearer_methods_supported":["header"]}`,
			"/team/mcp", `Bearer resource_metadata=` +
				`"https://gw.example:8443/.well-known/oauth-protected-resource/team/mcp"`},
		{Options{Issuer: "https://i.example", Audience: "https://gw.example"},
			`{"resource":"https://gw.example","authorization_servers":["https://i.example"],` +
				`"bearer_methods_supported":["header"]}`,
			"", `Bearer resource_metadata="https://gw.example/.well-known/oauth-protected-resource"`},
	} {
		v := New(tt.o)
		if got := string(v.Metadata("")); got != tt.json {
			t.Errorf("%s: %s", tt.o.Audience, got)
		}
		if got := v.Challenge(nil, ""); got != tt.challenge {
			t.Errorf("%s: %s", tt.o.Audience, got)
		}
		for path, want := range map[string]bool{
			MetadataPath: true, MetadataPath + "/mcp": true, MetadataPath + tt.path: true,
			// without a path in the audience, it is the resource of the profile "other"
			MetadataPath + "/other":                   tt.path == "",
			"/.well-known/oauth-authorization-server": false,
			"/mcp" + MetadataPath:                     false, MetadataPath + "/mcp/a/b": false,
			MetadataPath + "/mcp/A": false, MetadataPath + "/mcp/": false,
		} {
			if _, ok := v.ProfileOfMetadata(path); ok != want {
				t.Errorf("%s: metadata at %s: %t", tt.o.Audience, path, !want)
			}
		}
	}
	// The path of a profile is a resource of its own.
	v := New(Options{Issuer: "https://i", Audience: "https://g/mcp"})
	if name, ok := v.ProfileOfMetadata(MetadataPath + "/mcp/reader"); name != "reader" || !ok {
		t.Errorf("%q, %t", name, ok)
	}
	if got := string(v.Metadata("reader")); got != `{"resource":"https://g/mcp/reader",`+
		`"authorization_servers":["https://i"],"bearer_methods_supported":["header"]}` {
		t.Error(got)
	}
	for profile, want := range map[string]string{"reader": "/mcp/reader", `x"y`: "/mcp",
		"a/b": "/mcp"} {
		if got := v.Challenge(nil, profile); got != `Bearer resource_metadata="https://g`+
			MetadataPath+want+`"` {
			t.Errorf("%s: %s", profile, got)
		}
	}
	v = New(Options{Issuer: "https://i", Audience: "https://g", Scopes: []string{"a"}})
	for want, err := range map[string]error{
		`Bearer error="invalid_token", error_description="it is wrong", `: invalid("it is \"wrong\"\r\n"),
		`Bearer error="insufficient_scope", error_description=` +
			`"the access token needs the scopes a", `: &ScopeError{[]string{"a"}},
	} {
		want += `scope="a", resource_metadata="https://g/.well-known/oauth-protected-resource"`
		if got := v.Challenge(err, ""); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// The audience may have no path, or end in a slash: the URL of the metadata in a challenge is
// served, and a token for the resource of a profile is valid at the profile.
func TestProfilesOfAnAudienceWithoutPath(t *testing.T) {
	for _, audience := range []string{"https://gw.example", "https://gw.example/",
		"https://gw.example/mcp/"} {
		p := oidctest.New(t, oidctest.Options{})
		v := newVerifier(t, Options{Issuer: p.Issuer(), Audience: audience})
		u, err := url.Parse(v.metadataURL("dev"))
		if err != nil {
			t.Fatal(err)
		}
		if profile, ok := v.ProfileOfMetadata(u.Path); !ok || profile != "dev" {
			t.Errorf("%s: %s is the profile %q", audience, u, profile)
		}
		resource := v.opts.resource("dev")
		if strings.Contains(strings.TrimPrefix(resource, "https://"), "//") {
			t.Errorf("the resource is %s", resource)
		}
		token := p.IssueToken(oidctest.TokenSpec{Claims: map[string]any{"aud": resource}})
		if _, err := v.Verify(t.Context(), token, "dev"); err != nil {
			t.Errorf("%s: %v", audience, err)
		}
		wantInvalid(t, v, token, "another audience")
	}
}
