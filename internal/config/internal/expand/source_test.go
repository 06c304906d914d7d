package expand

import (
	"slices"
	"strings"
	"testing"
)

func TestSourceWords(t *testing.T) {
	vars := map[string]string{"ITEM": "a b", "DIR": "/run", "EMPTY": ""}
	for text, want := range map[string][]string{
		"${file:/run/secrets/x}":                       {"file", "/run/secrets/x"},
		"${file:~/a b.txt}":                            {"file", "~/a b.txt"},
		"${file:${DIR}/x}":                             {"file", "/run/x"},
		"${file:${NO:-/tmp}/x}":                        {"file", "/tmp/x"},
		"${file:/a$$b}":                                {"file", "/a$b"},
		"${keyring:team/github}":                       {"keyring", "team/github"},
		"${command:op read op://vault/item/field}":     {"command", "op", "read", "op://vault/item/field"},
		"${command:op read \"op://my vault/${ITEM}\"}": {"command", "op", "read", "op://my vault/a b"},
		"${command:x ${ITEM} y}":                       {"command", "x", "a b", "y"},
		"${command:x ${NO:-d e}}":                      {"command", "x", "d e"},
		"${command:  x\t'a  b'\n c }":                  {"command", "x", "a  b", "c"},
		`${command:jq -r '{"a": .b}'}`:                 {"command", "jq", "-r", `{"a": .b}`},
		`${command:x "say \"hi\" \\ \n" 'it\'}`:        {"command", "x", `say "hi" \ \n`, `it\`},
		`${command:"C:\Program Files\op.exe" read}`:    {"command", `C:\Program Files\op.exe`, "read"},
		`${command:C:\bin\op.exe a'b'"c" ''}`:          {"command", `C:\bin\op.exe`, "abc", ""},
		"${command:echo $HOME $(id) `id` a;b|c>d *}": {"command", "echo", "$HOME", "$(id)", "`id`",
			"a;b|c>d", "*"},
		"${command:x '$${A}' $$B}": {"command", "x", "${A}", "$B"},
	} {
		var got []string
		x := Expander{
			Env: func(name string) (string, bool) { value, ok := vars[name]; return value, ok },
			Source: func(s ValueSource) (string, *ReferenceError) {
				got = append([]string{string(s.Kind)}, s.Words...)
				return "VALUE", nil
			},
		}
		out := x.Expand("<" + text + ">")
		if out != "<VALUE>" || !slices.Equal(got, want) || len(x.Errors) > 0 {
			t.Errorf("%s: %q, %q, %+v; want %q", text, out, got, x.Errors, want)
		}
	}
}

func TestMalformedSources(t *testing.T) {
	for text, want := range map[string]string{
		"${file:}":                     "names no file",
		"${keyring:}":                  "names no secret",
		"${command: }":                 "names no program",
		"${command:''}":                "names no program",
		"${file:${EMPTY}}":             "is empty after its variables are expanded",
		"${file:/x":                    "not closed by }",
		"${command:x":                  "not closed by }",
		"${command:x '}":               "a quote in ${command:…} is not closed",
		"${command:x ${A}":             "not closed by }",
		"${file:${NO}/x}":              "variable NO is not set",
		"${file:${keyring:x}}":         "contains a reference that is not a variable",
		"${command:x ${command:y}}":    "contains a reference that is not a variable",
		"${file:${NO:-${keyring:x}}/}": "contains a reference that is not a variable",
	} {
		x := Expander{
			Env: func(name string) (string, bool) { return "", name == "EMPTY" },
			Source: func(s ValueSource) (string, *ReferenceError) {
				t.Errorf("%s: %+v is read", text, s)
				return "", nil
			},
		}
		x.Expand(text)
		if len(x.Errors) == 0 || !strings.Contains(x.Errors[0].Problem, want) {
			t.Errorf("%s: %+v, want %q", text, x.Errors, want)
		}
	}
}

// Files of other clients keep their own syntax.
func TestForeignSources(t *testing.T) {
	for _, text := range []string{"${file:/x}", "${keyring:x}", "${command:x}", "${input:x}"} {
		x := Expander{Foreign: true, Env: AllSet}
		x.Source = func(s ValueSource) (string, *ReferenceError) {
			t.Errorf("%s: %+v is read", text, s)
			return "", nil
		}
		x.Expand(text)
		if len(x.Errors) != 1 || !x.Errors[0].Foreign {
			t.Errorf("%s: %+v", text, x.Errors)
		}
	}
	x := Expander{Foreign: true, Env: AllSet}
	if got := x.Expand("${env:A}"); got != "1" {
		t.Errorf("%q, %+v", got, x.Errors)
	}
}

func TestSourcesAsWritten(t *testing.T) {
	const text = "a ${file:${DIR}/x} ${NO:-${keyring:b}} $${file:c} ${command:d '${E}'} ${command:"
	var got []string
	for _, s := range Sources(text) {
		got = append(got, string(s.Kind)+" "+s.Written)
	}
	if want := []string{"file ${DIR}/x", "keyring b", "command d '${E}'"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := HideSources("a ${file:op://x} b ${command:$C '}'}"); got != "a x b x" {
		t.Errorf("%q", got)
	}
	if got := (ValueSource{Kind: Command, Words: []string{"x", "secret"}}).Shown(); got != "${command:x …}" {
		t.Errorf("%q", got)
	}
}

// FuzzExpand checks that any text is expanded without a panic, that only complete references are
// read, and that References and the Expander agree about their ends.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{"${command:a 'b' \"c\\\" ${D:-e}}", "${file:${A}}", "$${file:x}",
		"${keyring:a", "${VAR:-${command:x}}", "${command:${"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, foreign := range []bool{false, true} {
			x := Expander{Foreign: foreign, Env: AllSet}
			x.Source = func(s ValueSource) (string, *ReferenceError) {
				if foreign || len(s.Words) == 0 || s.Words[0] == "" {
					t.Errorf("%q: %+v", text, s)
				}
				return "", nil
			}
			x.Expand(text)
		}
		for _, r := range References(text) {
			if !strings.HasPrefix(text[r.From:], "${") || text[r.To-1] != '}' {
				t.Errorf("%q: %+v", text, r)
			}
		}
		Sources(text)
		HideSources(text)
	})
}
