package resourceserver

import "testing"

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
			MetadataPath + "/other": false, "/.well-known/oauth-authorization-server": false,
			"/mcp" + MetadataPath: false, MetadataPath + "/mcp/a/b": false,
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
