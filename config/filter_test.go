package config

import "testing"

func TestFilterPermitsURIs_F_SEC_12(t *testing.T) {
	deny := func(globs ...string) Filter { return Filter{Deny: globs} }
	allow := func(globs ...string) Filter { return Filter{Allow: globs} }
	for _, c := range []struct {
		filter Filter
		uri    string
		want   bool
	}{
		{Filter{}, "file:///etc/passwd", true},
		{deny("*"), "x:y", false},
		{deny("file:///etc/*"), "file:///home/x", true},
		{deny("file:///etc/*"), "file:///etc/passwd", false},
		{deny("file:///etc/*"), "file:///etc/ssl/key", false},
		{deny("file:///etc/*"), "FILE:///etc/passwd", false},
		{deny("file:///etc/*"), "file:///ETC/passwd", false},
		{deny("file:///etc/*"), "file:///%65tc/passwd", false},
		{deny("file:///etc/*"), "file:///etc%2Fpasswd", false},
		{deny("file:///etc/*"), "file:///home/../etc/passwd", false},
		{deny("file:///etc/*"), "file:///home/%2e%2E/etc/passwd", false},
		{deny("file:///etc/*"), "file:///home/..%2fetc/passwd", false},
		{deny("file:///etc/*"), "file:///./etc/passwd", false},
		{deny("file:///etc/*"), "file:////etc/passwd", false},
		{deny("file:///etc/*"), "file:///home//../etc/passwd", false},
		{deny("file:///etc/*"), "file:/etc/passwd", false},
		{deny("file:///etc/*"), "file://localhost/etc/passwd", false},
		{deny("file:///etc/*"), `file:///home\..\etc\passwd`, false},
		{deny("notes://My%20Note"), "notes://my note", false},
		{deny("x://a/[A-Z]*"), "x://a/bee", false},
		{allow("file:///docs/*"), "file:///docs/a", true},
		{allow("file:///docs/*"), "file:///docs/a/b", true},
		{allow("file:///docs/*"), "file:///docs/../etc/passwd", false},
		{allow("file:///docs/*"), "file:///docs/%2e%2e/etc/passwd", false},
		{allow("file:///docs/*"), "file:///docs/..%2f..%2fetc/passwd", false},
		{allow("file:///docs/*"), `file:///docs/..\etc`, false},
		{allow("file:///docs/*"), "file:///docs/a%20b", true},
		{allow("notes://My%20Note"), "notes://My%20Note", true},
		{allow("notes://My%20*"), "notes://My%20Note?q=%2F..%2F", true},
		{allow("notes://*"), "notes://Table//x", true},
		{allow("notes://Table//*"), "notes://Table//x", true},
		{allow("notes://{id}"), "notes://{id}", true},
		{allow("notes://{id}"), "notes://5", false},
		{allow("urn:isbn:*"), "urn:isbn:1", true},
		{Filter{Allow: []string{"*"}, Deny: []string{"*/private/*"}}, "https://h/x/private/y", false},
		{Filter{Allow: []string{"*"}, Deny: []string{"*/private/*"}}, "https://h/x/%70rivate/y", false},
	} {
		if got := c.filter.PermitsURI(c.uri); got != c.want {
			t.Errorf("%+v permits %s: %t, want %t", c.filter, c.uri, got, c.want)
		}
	}
}

func TestInPlaceChanges_F_CLI_5(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want bool
	}{
		{[]string{"tools.allow", "tools.deny", "prompts.deny", "resources.allow"}, true},
		{[]string{"tools.deny", "call_timeout"}, false},
		{[]string{"env.tools.x"}, false},
		{[]string{"headers.X"}, false},
	} {
		if got := (BackendChange{Name: "a", Keys: c.keys}).InPlace(); got != c.want {
			t.Errorf("%q: %t, want %t", c.keys, got, c.want)
		}
	}
}
