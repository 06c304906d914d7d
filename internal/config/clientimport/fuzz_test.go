package clientimport

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/dialect"
)

// importable returns paths of importable files: the paths of every client, which determine the
// format, and unknown paths.
func importable() []string {
	all := []string{"/nowhere/x.json", "/nowhere/x.toml", "/nowhere/x.yaml"}
	for _, c := range dialect.Clients {
		for _, pattern := range c.Files {
			all = append(all, "/nowhere"+strings.ReplaceAll(pattern[1:], "*", "x"))
		}
	}
	return all
}

// FuzzImport imports arbitrary files under all known names. The resulting YAML must load when its
// variables are set.
func FuzzImport(f *testing.F) {
	paths := importable()
	for _, file := range glob(f, "testdata/*.txtar") {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, member := range archive.Files {
			for i, path := range paths {
				if strings.HasSuffix("/"+member.Name, strings.TrimPrefix(path, "/nowhere")) ||
					i < 3 && filepath.Ext(member.Name) == filepath.Ext(path) {
					f.Add(uint8(i), member.Data)
				}
			}
		}
	}
	for i := range paths {
		f.Add(uint8(i),
			[]byte(
				`{"mcpServers":{"a b":{"command":"x","args":["--api-key=abc","$x"],"env":{"A_TOKEN":"v"}}}}`))
		f.Add(uint8(i),
			[]byte(
				`{"servers":{"a":{"url":"https://u:p@h/?key=v","headers":{"Authorization":"Bearer x"}}}}`))
		f.Add(uint8(i), []byte("[mcp_servers.a]\ncommand = \"x\"\nargs = [\"a\"]\n"))
		f.Add(uint8(i),
			[]byte(
				`{"mcpServers":{"a":{"type":"sse","url":"https://h/sse"},"b":{"transport":"sse","command":"x"},"c":{"httpUrl":"https://h","url":"https://h/sse"}}}`))
		f.Add(uint8(i), []byte(`{"mcp":{"a":{"type":"local","command":["x","y"]}}}`))
		f.Add(uint8(i),
			[]byte(
				`{"mcp":{"servers":{"a":{"command":"x","cwd":"y"}},"inputs":[{"id":"a","default":"b"}]}}`))
		f.Add(uint8(i),
			[]byte(
				`{"mcpServers":[{"name":"a","command":"cmd","args":["/c","x y"],"requestOptions":{"headers":{"A":"b"}}}]}`))
		f.Add(uint8(i),
			[]byte(
				`{"context_servers":{"a":{"command":{"path":"x","args":["./y"]}}},"extensions":{"b":{"cmd":"x","env_keys":["A B"]}}}`))
		f.Add(uint8(i),
			[]byte(
				`{"amp.mcpServers":{"a":{"command":"x","args":["${A:-${B}}","${A}","$A"],"env":{"A":"op://b"}}}}`))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		path := paths[int(which)%len(paths)]
		im := newImporter(Options{Home: "/home/u", Cwd: "/src/project", Env: lookup(nil)})
		if err := im.readData(path, data); err != nil && err.Problem == "" {
			t.Errorf("incomplete: %#v", err)
		}
		im.finish()
		out := im.result.YAML()
		set := func(name string) (string, bool) {
			if value := im.secrets.variables[name]; value != "" && value != unknownValue {
				return value, true
			}
			if strings.HasPrefix(name, "GATEWAY_") {
				return "", true
			}
			return "https://1", true
		}
		loaded, err := config.LoadData("imported.yaml", out, config.Options{Env: set, Strict: true})
		if err != nil {
			var errs config.Errors
			if errors.As(err, &errs) && onlyVariables(errs) {
				return
			}
			t.Fatalf("%v\n%s", err, out)
		}
		if got, want := len(loaded.Config.Backends), len(im.result.servers); got != want {
			t.Fatalf("%d backends of %d servers\n%s", got, want, out)
		}
		for i := range im.result.servers {
			if found := im.secretsLeft(&im.result.servers[i]); found != "" {
				t.Errorf("%s shows in\n%s", found, out)
			}
		}
		for i, s := range im.result.servers {
			if b := loaded.Config.Backends[i]; b.Name != s.name ||
				s.transport != "" && b.Transport != s.transport || len(b.Args) != len(s.args) ||
				len(b.Env) != len(s.env) || len(b.Headers) != len(s.headers) {
				t.Errorf("%+v became %+v\n%s", s, b, out)
			}
		}
	})
}

// onlyVariables reports whether all errors are about URLs with variables, for which no value is
// always valid, or about variables that are empty.
func onlyVariables(errs config.Errors) bool {
	for _, one := range errs {
		if one.Key != "url" && !strings.Contains(one.Problem, " is empty") {
			return false
		}
	}
	return true
}

// secretsLeft returns a secret that a secretReplacer would replace in s; "" = none.
func (im *importer) secretsLeft(s *importedServer) string {
	copied := *s
	copied.args, copied.env, copied.headers = slices.Clone(s.args), slices.Clone(s.env),
		slices.Clone(s.headers)
	im.secrets.hideIn(&copied)
	before, after := s.texts(), copied.texts()
	for i := range before {
		if before[i] != after[i] {
			return before[i]
		}
	}
	return ""
}

// FuzzImportHides inserts a token between arbitrary texts, in each position of an entry that may
// contain a secret. The output never contains the token.
func FuzzImportHides(f *testing.F) {
	const token = "gh" + "p_Zq9Zq8Zq7Zq6Zq5Zq4Zq3"
	for _, around := range [][2]string{
		{"", ""}, {"Bearer ", ""}, {`{"a":"`, `"}`}, {"https://u:", "@h"},
		{"https://h/?k=", "&x=y"}, {"a=", ";b=c"}, {"${A:-", "}"}, {"${A:", "}"}, {"$", "$"},
		{"--x=", ""}, {"'", "'"}, {"x ", " y"}, {"(", ")"}, {"a,", ",b"},
		{"[\"--header\", \"X: ", "\"]"}, {"https://h/", "/mcp"}, {"#", ""}, {"?", ""},
	} {
		f.Add(around[0], around[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if !utf8.ValidString(before) || !utf8.ValidString(after) ||
			wordy.MatchString(before+"|"+after) {
			return // a longer word and therefore a different token
		}
		if strings.HasSuffix(before, "$") || strings.HasSuffix(before, "${") ||
			strings.HasSuffix(before, "env:") {
			return // the token would be the name of a variable
		}
		text, err := json.Marshal(before + token + after)
		if err != nil {
			t.Fatal(err)
		}
		data := strings.ReplaceAll(`{"mcpServers":{
			"a":{"command":"x","args":["--flag",T,T],"env":{"X":T,"LONG_NAME":T}},
			"b":{"url":"https://h/mcp","headers":{"X-Name":T,"Accept":T}}}}`, "T", string(text))
		for _, path := range []string{"/nowhere/.mcp.json", "/nowhere/claude_desktop_config.json",
			"/nowhere/x.json"} {
			im := newImporter(Options{Home: "/home/u", Cwd: "/src/project", Env: lookup(nil)})
			if err := im.readData(path, []byte(data)); err != nil {
				t.Fatal(err)
			}
			im.finish()
			if all := string(im.result.YAML()) +
				strings.Join(im.result.Notes, "\n"); strings.Contains(all, token) {
				t.Errorf("%s with %q and %q around the token:\n%s", path, before, after, all)
			}
		}
	})
}

// wordy matches texts that would extend the token between them to a longer word.
var wordy = regexp.MustCompile(
	`[^\s"'=:;,&?#/<>(){}\[\]|]\|[^\s"'=:;,&?#/<>(){}\[\]]?|\|[^\s"'=:;,&?#/<>(){}\[\]]`)
