package config

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
)

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
		{deny("file:///secret/*"), "file:///sec\tret/x", false},
		{deny("file:///secret/*"), "file:///sec\r\nret/x", false},
		{deny("file:///secret/*"), " file:///secret/x", false},
		{deny("file:///secret/*"), "\x00file:///secret/x", false},
		{deny("file:///secret/*"), "file:///open/x", true},
		{deny("file:///secret/*"), "file:///open/a b", true},
		{deny("file:///secret/*"), "file:///?/../secret/x", false},
		{deny("file:///secret/*"), "file:///open/a?/../../secret/x", false},
		{deny("file:///secret/*"), "file:///%2573ecret/x", false},
		{deny("file:///secret/*"), "file://other.example/secret/x", false},
		{deny("file:///secret/*"), "FILE:/secret/x", false},
		{allow("file:///notes/*"), "file:///notes/.\t./secret/x", false},
		{allow("file:///notes/*"), "file:///notes/a?/../../secret/x", false},
		{allow("file:///notes/*"), "file:///notes/a?b=c/d#e", true},
		{allow("file:///notes/*"), "file:///notes/%252e%252e/secret", false},
		{deny("https://internal.example/*"), "https://internal.example:443/a", false},
		{deny("https://internal.example/*"), "https://u:p@internal.example/a", false},
		{deny("https://internal.example/*"), "https:internal.example/a", false},
		{deny("https://internal.example/*"), "https:/internal.example/a", false},
		{deny("https://internal.example/*"), "https:///internal.example/a", false},
		{deny("https://internal.example/*"), `https:\\internal.example\a`, false},
		{deny("https://internal.example/*"), "https://internal.example./a", false},
		{deny("https://internal.example/*"), "https://internal.example", false},
		{deny("https://internal.example/*"), "https://internal.example?q", false},
		{deny("https://internal.example/*"), "https://internal\u3002example/a", false},
		{deny("https://internal.example/*"), "https://\uff49nternal.example/a", false},
		{deny("https://internal.example/*"), "https://inter\u00adnal.example/a", false},
		{deny("https://internal.example/*"), "https://inter%6eal.example/a", false},
		{deny("https://internal.example/*"), "https://open.example/a", true},
		{deny("https://internal.example:443/*"), "https://internal.example/a", false},
		{deny("https://internal.example/*"), "https://internal.example:8443/a", true},
		{allow("file://R/notes/*"), "file://R/notes//../secret/x", false},
		{allow("file://R/notes/*"), "file://R/notes/.//../secret/x", false},
		{allow("file://R/notes/*"), "file://R/notes/%2f../secret/x", false},
		{allow("file://R/notes/*"), "file://R/notes/%5c../secret/x", false},
		{allow("file://R/notes/*"), `file://R/notes/\../secret/x`, false},
		{allow("file://R/notes/*"), "file://R/notes/a//b", true},
		{allow("file://R/notes/*"), "file://R/notes/a/../b", true},
		{allow("notes://Table//*"), "notes://Table//a/../b", true},
		{allow("https://api.example/*"), "https://api.example/a?b", true},
		{allow("https://api.example/*"), "https://api.example@other.example/a", false},
		{allow("https://api.example/*"), `https://api.example\@other.example/a`, false},
		{allow("https://api.example"), "https://api.example", true},
		{allow("https://api.example:443/*"), "https://api.example:443/a", true},
		{allow("https://*.example/*"), "https://api.example/a", true},
		{deny("postgres://db/secret"), "postgres://user@db/open", true},
		{deny("postgres://db/secret"), "postgres://user@db/secret", false},
		{deny("postgres://db/*"), "postgres://db./secret", false},
		{deny("file:///r/secret"), "file:///r/secret/", false},
		{deny("file:///r/secret"), "file:///r/secret//", false},
		{deny("file:///r/secret"), "file:///r/secret/.", false},
		{deny("file:///r/secret"), "file:///r/secret/x/..", false},
		{deny("file:///r/secret"), "file:///r/secret/x", true},
		{deny("file:///C:/secret/*"), "file:///C|/secret/x", false},
		{deny("file:///C:/secret/*"), "file:C:/secret/x", false},
		{deny("file:///C:/secret/*"), "file:///c:/../secret/x", false},
		{deny("file:///C:/secret/*"), `file:///C:\secret\x`, false},
		{Filter{Allow: []string{"*"}, Deny: []string{"*/private/*"}}, "https://h/x/private/y",
			false},
		{Filter{Allow: []string{"*"}, Deny: []string{"*/private/*"}}, "https://h/x/%70rivate/y",
			false},
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
		{[]string{"tools.allow", "tools.deny", "tools.confirm", "prompts.deny", "resources.allow"}, true},
		{[]string{"rate.limit", "rate.burst", "instructions"}, true},
		{[]string{"tools.deny", "call_timeout"}, false},
		{[]string{"env.rate"}, false},
		{[]string{"env.tools.x"}, false},
		{[]string{"headers.X"}, false},
	} {
		if got := (BackendChange{Name: "a", Keys: c.keys}).InPlace(); got != c.want {
			t.Errorf("%q: %t, want %t", c.keys, got, c.want)
		}
	}
}

// The globs of tools.confirm have the syntax of the other globs: * also matches slashes.
func TestMustConfirm(t *testing.T) {
	f := Filters{Confirm: []string{"del_*", "x?", `lit\*`, "[a-c]/*"}}
	for name, want := range map[string]bool{"del_": true, "del_a/b": true, "Del_a": false,
		"a_del_": false, "x1": true, "x": false, "lit*": true, "litx": false, "b/c/d": true,
		"": false} {
		if got := f.MustConfirm(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
	if (&Filters{}).MustConfirm("x") {
		t.Error("without globs a tool must be confirmed")
	}
}

// A change of tools.confirm alone is a change, named by its key, and is applied in place, also to a
// backend that is held.
func TestDiffOfConfirm(t *testing.T) {
	const entry = "backends: [{name: a, command: x, tools: {deny: [d], confirm: [%s]}}]"
	old, next := loadText(t, fmt.Sprintf(entry, "b")), loadText(t, fmt.Sprintf(entry, "c"))
	c := Diff(old, next)
	if len(c.Changed) != 1 || !slices.Equal(c.Changed[0].Keys, []string{"tools.confirm"}) ||
		c.Changed[0].Effect != InPlace {
		t.Errorf("the changes are %+v", c)
	}
	if old.Backends[0].Filters().Equal(next.Backends[0].Filters()) ||
		!reflect.DeepEqual(old.Backends[0].WithoutRuntimeKeys(),
			next.Backends[0].WithoutRuntimeKeys()) {
		t.Error("the runtime keys are compared wrongly")
	}
	broken := loadText(t, "backends: [{name: a, command: \"${NO}\", tools: {confirm: [e]}}]")
	held := Diff(old, broken)
	if got := old.Effective(broken, held).Backends[0]; len(held.Held) != 1 || got.Command != "x" ||
		!slices.Equal(got.Tools.Confirm, []string{"e"}) {
		t.Errorf("the held backend is %+v, changes %+v", got, held)
	}
}
