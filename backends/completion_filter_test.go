package backends

import (
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// A completion is refused if its arguments expand its template to a resource that is denied or not
// allowed. The value to be completed need not be allowed.
func TestCompletionsOfDeniedResources(t *testing.T) {
	for _, c := range []struct {
		allow, deny, params string
		want                bool
	}{
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{dir}/{file}"},"argument":{"name":"file","value":""},"context":{"arguments":{"dir":"open"}}}`, true},
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{dir}/{file}"},"argument":{"name":"file","value":""},"context":{"arguments":{"dir":"secret"}}}`, false},
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{dir}/{file}"},"argument":{"name":"file","value":"a"},"context":{"arguments":{"dir":"Secret"}}}`, false},
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{+path}"},"argument":{"name":"path","value":"open/../secret/"}}`,
			false},
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{dir}/{file}"},"argument":{"name":"dir","value":"secret"}}`, false},
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{dir}/{file}"},"argument":{"name":"dir","value":"se"}}`, true},
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{dir}/{file}"},"argument":{"name":"file","value":""},"context":{"arguments":{"dir":"secret","dir":"open"}}}`, false},
		{"", "x:secret/*",
			`{"ref":{"uri":"x:{dir}/{file}"},"argument":{"name":"file","value":""},"context":{"arguments":{}},"Context":{"arguments":{"dir":"secret"}}}`, false},
		{"", "x:secret/*", `{"ref":{"uri":"x:{dir"},"argument":{"name":"dir","value":""}}`, false},
		{"", "x:secret/*", `{"ref":{"uri":"x:open"},"argument":{"name":"dir","value":"secret"}}`,
			true},
		{"", "x:secret/*", `{"ref":{"uri":"x:{dir}/{file}"}}`, true},
		// filters with an allow glob
		{"x:docs/*", "",
			`{"ref":{"uri":"x:docs/{+file}"},"argument":{"name":"file","value":"../a"}}`, true},
		{"x:docs/*", "",
			`{"ref":{"uri":"x:docs/{+dir}/{file}"},"argument":{"name":"file","value":""},"context":{"arguments":{"dir":".."}}}`, false},
		{"x:docs/{id}", "", `{"ref":{"uri":"x:docs/{id}"},"argument":{"name":"id","value":"1"}}`,
			true},
		{"x:docs/*?", "", `{"ref":{"uri":"x:docs/{id}"},"argument":{"name":"id","value":""}}`,
			true},
	} {
		var f config.Filters
		if c.allow != "" {
			f.Resources.Allow = []string{c.allow}
		}
		if c.deny != "" {
			f.Resources.Deny = []string{c.deny}
		}
		m, err := wire.Parse(
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":` + c.params +
				`}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := permitsCompletion(&f, m); got != c.want {
			t.Errorf("%+v permits %s: %t, want %t", f.Resources, c.params, got, c.want)
		}
	}
}
