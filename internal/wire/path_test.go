package wire

import "testing"

func TestSet(t *testing.T) {
	for _, c := range []struct {
		name, in, text string
		path           []string
		want           string // "" = not to be had
	}{
		{"exchanged", `{"jsonrpc":"2.0","method":"m","params":{"a":1.0, "ref":{"type":"x","name":"\u0061"},"z":[1]}}`, `"b"`,
			[]string{"params", "ref", "name"}, `{"jsonrpc":"2.0","method":"m","params":{"a":1.0, "ref":{"type":"x","name":"b"},"z":[1]}}`},
		{"put in", `{"jsonrpc":"2.0","method":"m","params":{ "level":"info"}}`, `"l"`,
			[]string{"params", "logger"}, `{"jsonrpc":"2.0","method":"m","params":{"logger":"l", "level":"info"}}`},
		{"put into an empty one", `{"jsonrpc":"2.0","method":"m","params":{}}`, `"l"`,
			[]string{"params", "logger"}, `{"jsonrpc":"2.0","method":"m","params":{"logger":"l"}}`},
		{"no such object", `{"jsonrpc":"2.0","method":"m","params":{"ref":3}}`, `"l"`, []string{"params", "ref", "name"}, ""},
		{"nothing there", `{"jsonrpc":"2.0","method":"m"}`, `"l"`, []string{"params", "ref", "name"}, ""},
		{"twice", `{"jsonrpc":"2.0","method":"m","params":{"x":1,"\u0078":2}}`, `"l"`, []string{"params", "x"}, ""},
		{"twice on the way", `{"jsonrpc":"2.0","method":"m","params":{"x":{"y":1},"x":{"y":2}}}`, `"l"`, []string{"params", "x", "y"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := m.Set([]byte(c.text), c.path...)
			switch {
			case ok != (c.want != ""):
				t.Errorf("ok = %v", ok)
			case ok && string(got.Raw()) != c.want:
				t.Errorf("got  %s\nwant %s", got.Raw(), c.want)
			case !ok && string(got.Raw()) != c.in:
				t.Errorf("changed: %s", got.Raw())
			case ok:
				if value, _ := Lookup(got.Raw(), c.path...); string(value) != c.text {
					t.Errorf("looked up %s", value)
				}
			}
		})
	}
}
