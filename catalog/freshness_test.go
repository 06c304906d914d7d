package catalog

import (
	"strings"
	"testing"
	"time"
)

func TestPageTTL(t *testing.T) {
	for text, want := range map[string]Page{
		`{"tools":[]}`: {},
		`{"tools":[],"ttlMs":1500,"cacheScope":"public"}`:                  {TTL: 1500 * time.Millisecond, Public: true},
		`{"tools":[],"ttlMs":0,"cacheScope":"private"}`:                    {},
		`{"tools":[],"ttlMs":-1,"cacheScope":"PUBLIC"}`:                    {},
		`{"tools":[],"ttlMs":"7","cacheScope":true}`:                       {},
		`{"tools":[],"ttlMs":1.5}`:                                         {},
		`{"tools":[],"ttlMs":null,"cacheScope":null}`:                      {},
		`{"tools":[],"ttlMs":90000000}`:                                    {TTL: maxTTL},
		`{"tools":[],"ttlMs":99999999999999999999999,"cacheScope":"else"}`: {TTL: maxTTL},
	} {
		page, err := ParsePage(Tools, []byte(text))
		if err != nil || page.TTL != want.TTL || page.Public != want.Public {
			t.Errorf("%s: ttl %v, public %v, %v", text, page.TTL, page.Public, err)
		}
	}
}

func TestFreshness(t *testing.T) {
	tools := func(ttl time.Duration, private bool, capabilities string) Listing {
		l := named(t, "x", "t")
		l.TTL[Tools], l.Private[Tools] = ttl, private
		if capabilities != "" {
			l.Capabilities = []byte(capabilities)
		}
		return l
	}
	none := Listing{Backend: "none", Capabilities: []byte(`{"prompts":{}}`)}
	unknown := Listing{Backend: "unknown"}
	unknown.Private[Tools] = true
	for name, c := range map[string]struct {
		listings []Listing
		ttl      time.Duration
		private  bool
	}{
		"no backend": {nil, 0, false},
		"one": {[]Listing{tools(time.Minute, false, `{}`)}, time.Minute,
			false},
		"the shortest": {[]Listing{tools(time.Minute, false, `{}`),
			tools(time.Second, false, `{}`)}, time.Second, false},
		"unspecified is the shortest": {[]Listing{tools(time.Minute, false, `{}`),
			tools(0, false, `{}`)}, 0, false},
		"one is private": {[]Listing{tools(time.Minute, true, `{}`),
			tools(time.Minute, false, `{}`)}, time.Minute, true},
		"backend without entries": {[]Listing{tools(time.Minute, false, `{}`), none},
			time.Minute, false},
		"backend that may have entries": {[]Listing{tools(time.Minute, false, `{}`), unknown}, 0,
			true},
		"declared empty list": {[]Listing{{Backend: "x",
			Capabilities: []byte(`{"tools":{}}`)}}, 0, false},
	} {
		ttl, private := Merge(Options{}, c.listings).Freshness(Tools)
		if ttl != c.ttl || private != c.private {
			t.Errorf("%s: ttl %v, private %v", name, ttl, private)
		}
	}
}

func TestSchemas(t *testing.T) {
	a := listing(t, "a", `{"name":"x","inputSchema":{"type":"object","title":"a"}}`)
	b := listing(t, "b", `{"inputSchema":{"type":"object", "title":"b"},"name":"x"}`)
	s := Merge(Options{}, []Listing{a, b})
	for name, want := range map[string]string{
		"x": `{"type":"object","title":"a"}`, "b__x": `{"type":"object", "title":"b"}`,
		"a__x": `{"type":"object","title":"a"}`, "y": "", "": "",
	} {
		if got := string(s.Schema(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	if got := string(s.Tool("b__x")); got != string(b.Items[Tools][0].Raw()) || s.Tool("y") != nil {
		t.Errorf("the tool is %s, and another %s", got, s.Tool("y"))
	}
	item := b.Items[Tools][0]
	other := item.WithSchema([]byte(`{"type":"object"}`))
	if got := string(other.Raw()); got != `{"inputSchema":{"type":"object"},"name":"x"}` ||
		string(other.originalLiteral()) != `"x"` {
		t.Errorf("with another schema: %s, called %s", got, other.originalLiteral())
	}
	if !strings.Contains(string(item.Raw()), `"title":"b"`) {
		t.Error("WithSchema changed its receiver")
	}
}
