package catalog

import (
	"strings"
	"testing"
	"time"

	"github.com/yosida95/uritemplate/v3"

	"mcpgateway/internal/wire"
)

// template returns a template, read by ParsePage.
func template(t testing.TB, text string) Item {
	t.Helper()
	page, err := ParsePage(Templates, []byte(`{"resourceTemplates":[{"uriTemplate":`+
		string(wire.Quote(text))+`}]}`))
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%.60s: %v", text, err)
	}
	return page.Items[0]
}

// TestTemplatesMatchTheirExpansions uses the examples of RFC 6570, section 3.2, levels 1 to 4,
// expanded by the library.
func TestTemplatesMatchTheirExpansions(t *testing.T) {
	values := uritemplate.Values{
		"count":      uritemplate.List("one", "two", "three"),
		"dom":        uritemplate.List("example", "com"),
		"list":       uritemplate.List("red", "green", "blue"),
		"keys":       uritemplate.KV("semi", ";", "dot", ".", "comma", ","),
		"empty_keys": uritemplate.KV(),
	}
	for name, value := range map[string]string{
		"dub": "me/too", "hello": "Hello World!", "half": "50%", "var": "value", "who": "fred",
		"base": "http://example.com/home/",
		"path": "/foo/bar", "v": "6", "x": "1024", "y": "768", "empty": "", "odd": "ünïcode 搜索 😀",
	} {
		values.Set(name, uritemplate.String(value))
	}
	for _, text := range strings.Fields(`
		{count} {count*} {/count} {/count*} {;count} {;count*} {?count} {?count*} {&count*}
		{var} {hello} {half} O{empty}X O{undef}X {x,y} {x,hello,y} ?{x,empty} ?{x,undef} ?{undef,y} {var:3} {var:30} {list} {list*} {keys} {keys*}
		{+var} {+hello} {+half} {base}index {+base}index O{+empty}X O{+undef}X {+path}/here here?ref={+path} up{+path}{var}/here {+x,hello,y}
		{+path,x}/here {+path:6}/here {+list} {+list*} {+keys} {+keys*}
		{#var} {#hello} {#half} foo{#empty} foo{#undef} {#x,hello,y} {#path,x}/here {#path:6}/here {#list} {#list*} {#keys} {#keys*}
		{.who} {.who,who} {.half,who} www{.dom*} X{.var} X{.empty} X{.undef} X{.var:3} X{.list} X{.list*} X{.keys} X{.keys*} X{.empty_keys} X{.empty_keys*}
		{/who} {/who,who} {/half,who} {/who,dub} {/var} {/var,empty} {/var,undef} {/var,x}/here {/var:1,var} {/list} {/list*} {/list*,path:4} {/keys} {/keys*}
		{;who} {;half} {;empty} {;v,empty,who} {;v,bar,who} {;x,y} {;x,y,empty} {;x,y,undef} {;hello:5} {;list} {;list*} {;keys} {;keys*}
		{?who} {?half} {?x,y} {?x,y,empty} {?x,y,undef} {?var:3} {?list} {?list*} {?keys} {?keys*}
		{&who} {&half} ?fixed=yes{&x} {&x,y,empty} {&x,y,undef} {&var:3} {&list} {&list*} {&keys} {&keys*}
		file:///{+path} a.b+c(d)/{x} note://{odd} note://{+odd}`) {
		tmpl, err := uritemplate.New(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		uri, err := tmpl.Expand(values)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		p := template(t, text).uriPattern
		if !p.matches(uri) {
			t.Errorf("%s does not match %s", text, uri)
		}
		for _, wrong := range []string{"\x00" + uri, uri + "\x00", uri + "\n", uri + " "} {
			if p.matches(wrong) {
				t.Errorf("%s matches %q", text, wrong)
			}
		}
	}
}

func TestTemplatesMatchNothingElse(t *testing.T) {
	for _, tt := range []struct{ template, is, isNot string }{
		{"test://template/{id}/data",
			"test://template/123/data test://template/a,b/data test://template/%2F/data test://template//data",
			"test://template/1/2/data test://template/1/data/ test://template/1 test://template/1?/data xtest://template/1/data"},
		{"file:///{+path}", "file:///a/b.txt file:///a?b#c file:/// file:///%20",
			"file://a file:///a|b"},
		{"r://x{/a,b}", "r://x r://x/1 r://x/1/2 r://x/",
			"r://x/1/2/3 r://x1 r://x/1/2/3/4 r://x?1"},
		{"r://x{/a*}", "r://x r://x/1/2/3/4/5", "r://x1"},
		{"r://x{?q}", "r://x r://x?q=1 r://x?q= r://x?q r://x?q=1,2",
			"r://x?p=1 r://x? r://x?q=1&p=2 r://x?qq=1 r://xq=1 r://x&q=1 r://x?q=a/b"},
		{"r://x{?q,p}", "r://x?q=1 r://x?p=1 r://x?q=1&p=2 r://x?p=2&q=1",
			"r://x?q=1&r=2 r://x?q=1?p=2 r://x?q=1p=2 r://x?&q=1"},
		{"r://x?a=1{&b}", "r://x?a=1 r://x?a=1&b=2", "r://x?a=2 r://x?a=1?b=2"},
		{"r://x{?a.b}", "r://x?a.b=1", "r://x?aXb=1"},
		{"a.b/{x}.txt", "a.b/1.txt a.b/.txt a.b/1.2.txt", "aXb/1.txt a.b/1_txt A.b/1.txt"},
		{"a{.x,y}", "a a.b a.b.c", "ab a/b"},
		{"a{;x,y}", "a a;x a;x=1 a;x=1;y=2", "a;z a,x a;x;z=1"},
		{"a{#f}", "a a# a#b/c?d", "ab"},
		{"{x}", "a 搜索 %E6 a,b", "a/b a:b a=b a?b a#b"},
		{"{x*}", "a,b a=b,c=d", "a/b"},
		{"note://é/{x}", "note://é/1 note://%C3%A9/1 note://%c3%a9/1", "note://e/1 note://%C3/1"},
		{"no://variables", "no://variables", "no://variable no://variabless"},
		{"{a}{b}", "xy x", "x/y"},
	} {
		p := template(t, tt.template).uriPattern
		for _, uri := range strings.Fields(tt.is) {
			if !p.matches(uri) {
				t.Errorf("%s does not match %s", tt.template, uri)
			}
		}
		for _, uri := range strings.Fields(tt.isNot) {
			if p.matches(uri) {
				t.Errorf("%s matches %s", tt.template, uri)
			}
		}
	}
}

// A template that is invalid in RFC 6570 is omitted, because mcp-go would reject the whole list.
func TestInvalidTemplatesAreLeftOut_F_LIST_1(t *testing.T) {
	for text, problem := range map[string]string{
		"a/{":                            "incomplete expression",
		"a/{}":                           "unacceptable variable name",
		"a/}":                            "unacceptable character",
		"a/{b":                           "incomplete expression",
		"a/{=b}":                         "unimplemented operator",
		"a/{b:0}":                        "max-length",
		"a/{b c}":                        "unacceptable variable name",
		"a b/{c}":                        "unacceptable character",
		"a/%2/{c}":                       "incomplete pct",
		strings.Repeat("{a}", 500) + "{": "incomplete expression",
	} {
		got := page(t, Templates, `{"resourceTemplates":[{"name":"n","uriTemplate":`+
			string(wire.Quote(text))+`},{"name":"n","uriTemplate":"z:{a}"}]}`)
		if len(got.Items) != 1 || len(got.Issues) != 1 || got.Issues[0].Repaired ||
			got.Issues[0].Item != text ||
			!strings.HasPrefix(got.Issues[0].Problem, "its uriTemplate is not valid by RFC 6570: "+
				problem) {
			t.Errorf("%.40s: %.300s", text, issueTexts(got, nil))
		}
	}
}

// Templates that exceed the bounds are still listed.
func TestTemplatesBeyondBounds(t *testing.T) {
	for text, problem := range map[string]string{
		strings.Repeat("a", 1025):             "more than 1024 bytes",
		strings.Repeat("{a}", 33):             "more than 32 variables",
		strings.Repeat("{a}", 341):            "more than 32 variables",
		"{" + strings.Repeat("a,", 32) + "a}": "more than 32 variables",
	} {
		raw := `{"name":"n","uriTemplate":` + string(wire.Quote(text)) + `}`
		page, err := ParsePage(Templates, []byte(`{"resourceTemplates":[`+raw+`]}`))
		if err != nil || len(page.Items) != 1 || len(page.Issues) != 1 ||
			!page.Issues[0].Repaired || page.Issues[0].Item != text ||
			!strings.Contains(page.Issues[0].Problem, problem) {
			t.Errorf("%.40s: %.300s, %v", text, issueTexts(page, err), err)
			continue
		}
		s := Merge(Options{},
			[]Listing{{Backend: "a", Items: [NumKinds][]Item{Templates: page.Items}},
				{Backend: "b", Capabilities: []byte(`{"resources":{}}`)}})
		if got := string(written(t, s, Templates)[0]); got != raw {
			t.Errorf("%.40s: listed as %.60s", text, got)
		}
		if r, ok := s.Lookup(Templates, text); !ok || r.Backend != "a" {
			t.Errorf("%.40s: is of %s", text, r.Backend)
		}
		if r, ok := s.ResolveResource("a/b"); ok {
			t.Errorf("%.40s: leads to %v", text, r)
		}
	}
	for _, text := range []string{strings.Repeat("a", maxTemplate), strings.Repeat("{a}", 32),
		"{" + strings.Repeat("a,", 31) + "a}"} {
		if template(t, text).uriPattern == nil {
			t.Errorf("%.40s: is refused at the bound", text)
		}
	}
}

// The time for any template and URI is proportional to the product of their lengths.
func TestHostileTemplates(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("{+a}", 31) + "!", "{+" + strings.Repeat("a,", 31) + "a}!",
		strings.Repeat("{a*}", 32), "{/" + strings.Repeat("a,", 31) + "a*}!",
		"{?" + strings.Repeat("a,", 31) + "a}!", "{?" + strings.Repeat("a*,", 31) + "a*}!",
		strings.Repeat("{a:9999}", 32), strings.Repeat("{#a*}", 32) + "x",
		strings.Repeat("{.a*}", 31) + "/",
	} {
		p := template(t, text).uriPattern
		for _, unit := range []string{"a", ",", "a,", "/", "a=", "&", "?a", "#", ".", "%41", "é"} {
			uri := strings.Repeat(unit, maxURI/len(unit))
			start := time.Now()
			p.matches(uri)
			// about 30 ms without -race and load
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("%.20s and %s…: %v", text, unit, took)
			} else if took > 10*time.Millisecond {
				t.Logf("%.20s and %s…: %v", text, unit, took)
			}
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, tt := range []struct{ template, uri string }{
		{"test://template/{id}/data", "test://template/123/data"},
		{"file:///{+path}", "file:///home/user/notes/2026/november/todo.md"},
		{"r://x{?q,p}", "r://x?q=1&p=2"},
		{"file:///{+path}", "https://other.example/"},
	} {
		b.Run(tt.template+" "+tt.uri[:4], func(b *testing.B) {
			p := template(b, tt.template).uriPattern
			b.ReportAllocs()
			for b.Loop() {
				p.matches(tt.uri)
			}
		})
	}
}
