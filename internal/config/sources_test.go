package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"mcpgateway/internal/config/internal/expand"
)

// testSources are Sources with fixed values. They record what was read.
type testSources struct {
	keyring, commands map[string]string // by name, by words with spaces

	mu   sync.Mutex
	read []string
}

func (s *testSources) record(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = append(s.read, what)
}

func (s *testSources) access() *Sources {
	return &Sources{
		Keyring: func(name string) (string, error) {
			s.record("keyring " + name)
			if value, ok := s.keyring[name]; ok {
				return value, nil
			}
			return "", errors.New("not found in the keyring: gateway secret set " + name + " stores it")
		},
		Command: func(words []string, variables map[string]string) (string, error) {
			line := strings.Join(words, " ")
			for _, name := range slices.Sorted(maps.Keys(variables)) {
				line += " " + name + "=" + variables[name]
			}
			s.record("command " + line)
			if value, ok := s.commands[line]; ok {
				return value, nil
			}
			return "", errors.New("it ended with exit status 1: " + line)
		},
	}
}

// writeFiles writes files into a new folder and returns the folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// loadIn loads a configuration as the file g.yaml of a folder.
func loadIn(dir, text string, o Options) (*Loaded, error) {
	return load(source{path: filepath.Join(dir, "g.yaml"), data: []byte(text)}, o)
}

// References work in every value: each has the value of its source.
func TestSources(t *testing.T) {
	dir := writeFiles(t, map[string]string{"token": "from-file\n", "crlf": "from-file\r\n",
		"two": "one\ntwo\n\n", "none": "", "my dir/x": "spaces"})
	s := &testSources{
		keyring:  map[string]string{"docs": "from-keyring"},
		commands: map[string]string{"op read op://v/i": "from-command", "x a b": "words"},
	}
	vars := map[string]string{"HOME": dir, "DIR": dir, "AB": "a b"}
	for value, want := range map[string]string{
		"${file:" + dir + "/token}":               "from-file",
		"${file:token}":                           "from-file",
		"${file:./token}":                         "from-file",
		"${file:~/token}":                         "from-file",
		"${file:${DIR}/token}":                    "from-file",
		"${file:crlf}":                            "from-file",
		"${file:two}":                             "one\ntwo\n",
		"${file:none}":                            "",
		"${file:my dir/x}":                        "spaces",
		"${keyring:docs}":                         "from-keyring",
		"${command:op read op://v/i}":             "from-command",
		"${command:x ${AB}}":                      "words",
		"a ${file:token} ${keyring:docs} $$ b":    "a from-file from-keyring $ b",
		"${NO:-${file:token}}":                    "from-file",
		"$${file:token}":                          "${file:token}",
		"${command:op 'read' \"op://v/i\"}":       "from-command",
		"${AB:-${command:is not needed and bad}}": "a b",
	} {
		loaded, err := loadIn(dir, fmt.Sprintf("backends: [{name: a, command: x, env: {V: %q}}]", value),
			Options{Env: lookup(vars), Sources: s.access()})
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if b := loaded.Config.Backends[0]; b.Env["V"] != want || b.Misconfigured != "" {
			t.Errorf("%s: %q, %q; want %q", value, b.Env["V"], b.Misconfigured, want)
		}
	}
	loaded, err := loadIn(dir, `
listen: 127.0.0.1:0
instructions: "${file:two}"
auth: {tokens: ["${command:token}"]}
backends: [{name: a, url: "https://${file:token}/", headers: {A: "Bearer ${keyring:docs}"}}]`,
		Options{Env: lookup(vars), Sources: (&testSources{
			keyring:  s.keyring,
			commands: map[string]string{"token": "0123456789abcdef"},
		}).access()})
	if err != nil {
		t.Fatal(err)
	}
	c := loaded.Config
	if c.Auth.Tokens[0].Text != "0123456789abcdef" || c.Auth.TokenVariable != "" ||
		c.Instructions != "one\ntwo\n" || c.Backends[0].URL != "https://from-file/" ||
		c.Backends[0].Headers["A"] != "Bearer from-keyring" {
		t.Errorf("%+v", c)
	}
}

// A value in a backend that cannot be read makes only that backend misconfigured.
func TestSourceMisconfiguresBackend(t *testing.T) {
	dir := writeFiles(t, map[string]string{"empty": "\n", "nul": "a\x00b", "large": strings.Repeat("x",
		maxSourceValue+1), "lines": "a\nb", "word": "many"})
	s := &testSources{keyring: map[string]string{"empty": ""}}
	for entry, want := range map[string]string{
		`command: x, env: {A: "${file:no}"}`:                                     "${file:no}: " + dir + "/no: no such file",
		`command: x, env: {A: "${file:/no/no}"}`:                                 "${file:/no/no}: no such file",
		`command: x, env: {A: "${file:.}"}`:                                      "is a directory",
		`command: x, env: {A: "${file:nul}"}`:                                    "contains a NUL character",
		`command: x, env: {A: "${file:large}"}`:                                  "longer than 64 KiB",
		`command: x, env: {A: "${file:${NO}}"}`:                                  "variable NO is not set: set it where the gateway is started",
		`command: x, env: {A: "${keyring:no}"}`:                                  "${keyring:no}: not found in the keyring: gateway secret set no stores it",
		`command: x, env: {A: "${command:op read op://v/i}"}`:                    "${command:op …}: it ended with exit status 1",
		`command: "${file:empty}"`:                                               "${file:empty} is empty",
		`url: https://h, headers: {A: "Bearer ${file:empty}"}`:                   "${file:empty} is empty",
		`url: https://h, headers: {A: "Bearer ${keyring:empty}"}`:                "${keyring:empty} is empty",
		`url: https://h, headers: {A: "${file:lines}"}`:                          "headers.A: must be one line",
		`url: "${keyring:no}"`:                                                   "${keyring:no}: not found",
		`command: x, max_in_flight: "${file:word}"`:                              `must be a whole number, not "${file:word}"`,
		`command: x, tools: {deny: ["${keyring:no}"]}`:                           "${keyring:no}: not found",
		`command: x, args: [--header, "Authorization: Bearer ${keyring:empty}"]`: "${keyring:empty} is empty",
		`command: x, env_file: no.env`:                                           "env_file: " + dir + "/no.env: no such file",
	} {
		text := "backends:\n- {name: a, " + entry + "}\n- {name: b, command: y}\n"
		loaded, err := loadIn(dir, text, Options{Env: lookup(nil), Sources: s.access()})
		if err != nil {
			t.Errorf("%s: %v", entry, err)
			continue
		}
		a, b := loaded.Config.Backends[0], loaded.Config.Backends[1]
		if !strings.Contains(a.Misconfigured, want) ||
			a.PermissionUnknown != strings.Contains(entry, "tools") {
			t.Errorf("%s: %q, want %q", entry, a.Misconfigured, want)
		}
		if b.Misconfigured != "" || b.Command != "y" {
			t.Errorf("%s: the other backend is %+v", entry, b)
		}
	}
}

// A variable that is set but empty, and leaves only a scheme, is the same error as an unset one.
func TestEmptyVariableLeavesScheme(t *testing.T) {
	vars := lookup(map[string]string{"EMPTY": "", "SET": "abc"})
	for entry, wrong := range map[string]bool{
		`url: https://h, headers: {Authorization: "Bearer ${EMPTY}"}`:          true,
		`url: https://h, headers: {Authorization: "Bearer ${EMPTY}${EMPTY}"}`:  true,
		`command: x, args: [--header, "Authorization: Bearer ${EMPTY}"]`:       true,
		`command: x, args: ["--header=Authorization:Basic ${EMPTY}"]`:          true,
		`command: x, env: {AUTH: "bearer ${EMPTY}"}`:                           true,
		`command: x, env: {AUTH: "Bearer ${SET}"}`:                             false,
		`command: x, env: {AUTH: "${EMPTY}"}`:                                  false,
		`command: x, env: {TEXT: "Bearer "}`:                                   false,
		`command: x, args: [--header, "Authorization: Bearer ${SET}${EMPTY}"]`: false,
		`command: x, args: ["the bearer ${EMPTY}of this"]`:                     false,
	} {
		loaded, err := load(source{path: "g.yaml", data: []byte("backends: [{name: a, " + entry + "}]")},
			Options{Env: vars})
		if err != nil {
			t.Fatal(err)
		}
		got := loaded.Config.Backends[0].Misconfigured
		if want := "variable EMPTY is empty: set it where the gateway is started"; (got == want) != wrong {
			t.Errorf("%s: %q", entry, got)
		}
	}
}

// Outside of backends, a value that cannot be read is an error of the file, with its line.
func TestSourceOutsideOfBackends(t *testing.T) {
	dir := writeFiles(t, map[string]string{"bad.env": "A=1\n\nB\n"})
	for text, want := range map[string]string{
		"\nauth: {tokens: [\"${keyring:no}\"]}":          "g.yaml:2: auth.tokens[0]: ${keyring:no}: not found in the keyring",
		"state: ${file:no}":                              "g.yaml:1: state: ${file:no}: " + dir + "/no: no such file",
		"instructions: ${command:x secret-word}":         "g.yaml:1: instructions: ${command:x …}: it ended with exit status 1",
		"backends: [{name: \"${file:no}\", command: x}]": "g.yaml:1: backends[0].name: ${file:no}: ",
		"\n\nenv_file: no.env":                           "g.yaml:3: env_file: " + dir + "/no.env: no such file",
		"env_file: bad.env":                              "g.yaml:1: env_file: " + dir + "/bad.env:3: is not a line of the form NAME=value",
		"listen: ${file:}":                               "g.yaml:1: listen: ${file:} names no file",
		"env_file: [a, b]":                               "g.yaml:1: env_file: must be a string",
		"env_file: ${file:x}":                            "g.yaml:1: env_file: ${file:x}: ",
	} {
		_, err := loadIn(dir, text, Options{Env: lookup(nil), Sources: (&testSources{}).access()})
		if errs := (Errors)(nil); !errors.As(err, &errs) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Each reference is read once per Load, also if several values contain it; another Load reads it
// again.
func TestSourceIsReadOncePerLoad(t *testing.T) {
	s := &testSources{commands: map[string]string{"x": "1"}, keyring: map[string]string{"k": "2"}}
	text := `
backends:
- {name: a, command: "${command:x}", args: ["${command: x }", "${keyring:k}"]}
- {name: b, command: y, env: {A: "${command:x}${keyring:k}"}}`
	for n := range 2 {
		if _, err := loadIn(t.TempDir(), text,
			Options{Env: lookup(nil), Sources: s.access()}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(s.read)
		if want := slices.Sorted(slices.Values(slices.Repeat([]string{"command x", "keyring k"},
			n+1))); !slices.Equal(s.read, want) {
			t.Errorf("read %q", s.read)
		}
	}
}

// Several commands run at the same time: each waits for all others.
func TestSourcesAreReadInParallel(t *testing.T) {
	var all sync.WaitGroup
	all.Add(3)
	access := &Sources{
		Keyring: func(string) (string, error) { return "", errors.New("no keyring") },
		Command: func([]string, map[string]string) (string, error) {
			all.Done()
			all.Wait()
			return "value", nil
		},
	}
	loaded, err := loadIn(t.TempDir(),
		`backends: [{name: a, command: x, args: ["${command:a}", "${command:b}", "${command:c}"]}]`,
		Options{Env: lookup(nil), Sources: access})
	if err != nil || !slices.Equal(loaded.Config.Backends[0].Args, []string{"value", "value", "value"}) {
		t.Errorf("%+v, %v", loaded, err)
	}
}

// A bounded number of commands runs at the same time: some of many commands wait for others.
func TestCommandsAreLimited(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{})
	var once sync.Once
	access := &Sources{
		Keyring: func(string) (string, error) { return "", errors.New("no keyring") },
		Command: func([]string, map[string]string) (string, error) {
			mu.Lock()
			running++
			if most = max(most, running); running == maxCommands {
				once.Do(func() { close(full) })
			}
			mu.Unlock()
			<-full
			mu.Lock()
			defer mu.Unlock()
			if running > maxCommands {
				t.Errorf("%d commands run", running)
			}
			running--
			return "value", nil
		},
	}
	var args strings.Builder
	for i := range maxCommands + maxCommands/2 {
		fmt.Fprintf(&args, `"${command:x %d}", `, i)
	}
	_, err := loadIn(t.TempDir(), "backends: [{name: a, command: x, args: ["+args.String()+"]}]",
		Options{Env: lookup(nil), Sources: access})
	if err != nil || most != maxCommands {
		t.Errorf("at most %d commands, %v", most, err)
	}
}

// Nothing is read for disabled backends, for keys that the caller does not need, without Sources,
// and by the functions that only examine a file.
func TestSourcesThatAreNotNeeded(t *testing.T) {
	const text = `
listen: 127.0.0.1:7
instructions: "${command:a}"
env_file: no.env
backends:
- {name: a, command: x, args: ["${command:b}"], env_file: no.env, enabled: false}
- {name: b, command: x, max_in_flight: "${file:no}", enabled: false}`
	path := filepath.Join(t.TempDir(), "g.yaml")
	s := &testSources{}
	for name, load := range map[string]func() error{
		"Validate": func() error { return Validate(path, []byte(text)) },
		"Describe": func() error { _, err := Describe(path, []byte(text)); return err },
		"required keys": func() error {
			_, err := LoadData(path, []byte(text+"\n- {name: c, command: \"${command:c}\"}"),
				Options{Env: lookup(nil), Sources: s.access(), RequiredKeys: []string{"listen"}})
			return err
		},
		"disabled": func() error {
			text := strings.Replace(strings.Replace(text, "env_file: no.env\nb", "b", 1),
				`instructions: "${command:a}"`, "", 1)
			_, err := LoadData(path, []byte(text), Options{Env: lookup(nil), Sources: s.access()})
			return err
		},
		"not approved": func() error {
			dir := writeFiles(t, map[string]string{"gateway.yaml": text})
			refused := errors.New("not approved")
			_, err := Load(Options{Dir: dir, Env: lookup(nil), Sources: s.access(),
				Approve: func(string, []byte) error { return refused }})
			if err == refused {
				err = nil
			}
			return err
		},
		"unchanged": func() error {
			dir := writeFiles(t, map[string]string{"g.yaml": "backends: [{name: a, command: \"${command:c}\"}]"})
			o := Options{Path: filepath.Join(dir, "g.yaml"), Env: lookup(nil), Sources: s.access()}
			l, err := Load(o)
			s.read = nil
			if err == nil && !l.Unchanged(o) {
				err = errors.New("Unchanged is false")
			}
			return err
		},
	} {
		s.read = nil
		if err := load(); err != nil || len(s.read) > 0 {
			t.Errorf("%s: %v, read %q", name, err, s.read)
		}
	}
	// Without Sources, a reference counts as a variable that is not set.
	loaded, err := LoadData(path, []byte(`backends: [{name: a, command: "${file:/etc/passwd}"}]`),
		Options{Env: lookup(nil)})
	if err != nil || loaded.Config.Backends[0].Misconfigured != "${file:/etc/passwd} is not read" {
		t.Errorf("%+v, %v", loaded, err)
	}
}

// In entries of mcpServers the references keep the meaning that they have for other clients.
func TestSourcesInServersFile(t *testing.T) {
	s := &testSources{}
	loaded, err := loadIn(t.TempDir(), `{"mcpServers": {
		"a": {"command": "x", "env": {"A": "${file:/etc/passwd}"}},
		"b": {"command": "x", "env": {"A": "${keyring:k}"}},
		"c": {"command": "x", "env": {"A": "${command:x}"}},
		"d": {"command": "x", "env": {"A": "${env:SET}"}}}}`,
		Options{Env: lookup(map[string]string{"SET": "1"}), Sources: s.access()})
	if err != nil || len(s.read) > 0 {
		t.Fatal(err, s.read)
	}
	for i, b := range loaded.Config.Backends {
		if b.Enabled != (i == 3) {
			t.Errorf("%+v", b)
		}
	}
	warnings := strings.Join(loaded.Warnings, "\n")
	for _, want := range []string{"${file:…} is not supported in mcpServers",
		"${keyring:…} is not supported in mcpServers", "only supported by VS Code"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning %q: %s", want, warnings)
		}
	}
}

// All values are secrets, line by line, and no error contains one.
func TestSourceValuesAreSecret(t *testing.T) {
	dir := writeFiles(t, map[string]string{"pem": "-----BEGIN KEY-----\nbGluZSBvbmUgb2Yga2V5\n", "word": "horse battery",
		"vars.env": "MY_PIN=correct-horse\n"})
	s := &testSources{
		keyring:  map[string]string{"k": "staple-value"},
		commands: map[string]string{"ok MY_PIN=correct-horse": "Bearer tok-from-command"},
	}
	loaded, err := loadIn(dir, `
env_file: vars.env
instructions: "${keyring:k}"
backends:
- {name: a, command: x, env: {A: "${file:pem}", B: "x ${file:word}"}}
- {name: b, url: https://h, headers: {Authorization: "${command:ok}"}}
- {name: c, command: x, args: ["${command:fails horse battery staple-value ghp_0123456789abcdefghijklmnopqrstuvwxyz}"]}
- {name: d, command: x, env: {PIN: "${MY_PIN}"}}`,
		Options{Env: lookup(nil), Sources: s.access()})
	if err != nil {
		t.Fatal(err)
	}
	secret := Secrets(loaded.Config)
	for _, want := range []string{"bGluZSBvbmUgb2Yga2V5", "horse battery", "staple-value",
		"Bearer tok-from-command", "tok-from-command", "correct-horse"} {
		if !slices.Contains(secret, want) {
			t.Errorf("%q is not secret: %q", want, secret)
		}
	}
	problem := loaded.Config.Backends[2].Misconfigured
	for _, leak := range []string{"horse battery", "staple-value", "correct-horse", "ghp_0123"} {
		if strings.Contains(problem, leak) {
			t.Errorf("the problem contains %q: %s", leak, problem)
		}
	}
	if !strings.Contains(problem, "it ended with exit status 1: fails *** *** ***") {
		t.Error(problem)
	}
}

// The error of a program is shortened, after secrets in it are masked.
func TestSourceErrorIsShort(t *testing.T) {
	access := (&testSources{keyring: map[string]string{"k": strings.Repeat("k", 200)}}).access()
	access.Command = func([]string, map[string]string) (string, error) {
		return "", errors.New("line one\nline two " + strings.Repeat("x", 250) + strings.Repeat("k", 200))
	}
	loaded, err := loadIn(t.TempDir(),
		`backends: [{name: a, command: x, args: ["${command:x}", "${keyring:k}"]}]`,
		Options{Env: lookup(nil), Sources: access})
	if err != nil {
		t.Fatal(err)
	}
	got := loaded.Config.Backends[0].Misconfigured
	if len(got) > maxSourceError+50 || strings.ContainsAny(got, "\n") ||
		strings.Contains(got, "kkk") ||
		!strings.Contains(got, "line one") {
		t.Error(got)
	}
}

// A file may have a limited number of different references.
func TestMaxSources(t *testing.T) {
	var text strings.Builder
	text.WriteString("backends: [{name: a, command: x, args: [")
	for i := range maxSources + 1 {
		fmt.Fprintf(&text, `"${keyring:k%d}", `, i)
	}
	text.WriteString("]}, {name: b, command: x}]")
	s := &testSources{}
	access := s.access()
	access.Keyring = func(name string) (string, error) { s.record(name); return "v", nil }
	loaded, err := loadIn(t.TempDir(), text.String(), Options{Env: lookup(nil), Sources: access})
	if err != nil {
		t.Fatal(err)
	}
	got := loaded.Config.Backends[0].Misconfigured
	if len(s.read) != maxSources || !strings.Contains(got, "more than 1000 different references") {
		t.Errorf("%d read: %s", len(s.read), got)
	}
}

// Files and Unchanged consider the files of ${file:…} and env_file, also missing ones.
func TestUnchangedComparesFiles(t *testing.T) {
	dir := writeFiles(t, map[string]string{"x.env": "A=1", "token": "one\n", "nul": "a\x00\n", "g.yaml": `
env_file: x.env
backends:
- {name: a, command: x, env: {T: "${file:token}", U: "${file:missing}", V: "${file:nul}"}, env_file: x.env}`})
	o := Options{Path: filepath.Join(dir, "g.yaml"), Env: lookup(nil),
		Sources: (&testSources{}).access()}
	for _, step := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "token"), []byte("two"), 0o600) },
		func() error { return os.WriteFile(filepath.Join(dir, "x.env"), []byte("A=2"), 0o600) },
		func() error { return os.WriteFile(filepath.Join(dir, "missing"), nil, 0o600) },
		func() error { return os.Remove(filepath.Join(dir, "token")) },
	} {
		l, err := Load(o)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, name := range []string{"missing", "nul", "token", "x.env"} {
			want = append(want, filepath.Join(dir, name))
		}
		if got := slices.Sorted(slices.Values(l.Files())); !slices.Equal(got, want) {
			t.Errorf("files %q, want %q", got, want)
		}
		if !l.Unchanged(o) {
			t.Error("changed before the change")
		}
		if err := step(); err != nil {
			t.Fatal(err)
		}
		if l.Unchanged(o) {
			t.Error("unchanged after the change")
		}
	}
}

// The effects of a file include what it reads and runs for its values, as written.
func TestDescribeSources(t *testing.T) {
	lines, err := Describe("g.yaml", []byte(`
env_file: top.env
auth: {tokens: ["${file:/run/token}"]}
backends:
- {name: a, command: x, env: {TOKEN: "${keyring:team/a}"}, args: ["${NO:-${command:op read op://v/${ITEM}}}"], env_file: a.env}
- {name: b, command: x, args: ["${command:off}"], enabled: false}
- {name: c, url: "https://h/${file:/run/c}?k=${command:y 'a}b'}"}`))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n") + "\n"
	for _, want := range []string{
		"the gateway gets the variables in: top.env\n",
		"the gateway gets the content of: /run/token\n",
		"accepts the tokens: ${file:/run/token}\n",
		"backend a gets the variables in: a.env\n",
		"backend a gets the secret of the keyring: team/a\n",
		"backend a gets the output of the command: op read op://v/${ITEM}\n",
		"TOKEN=${keyring:team/a}",
		"backend a gets the variables of your environment: ITEM, NO\n",
		"backend c gets the content of: /run/c\n",
		"backend c gets the output of the command: y 'a}b'\n",
		"backend c calls: https://h/${file:/run/c}?…\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "off") {
		t.Errorf("a disabled backend is described:\n%s", text)
	}
}

// The text of a reference is not mistaken for text that another program would interpret.
func TestSourcesAreNotLiteral(t *testing.T) {
	loaded, err := loadIn(t.TempDir(), `backends: [{name: a, command: x, env: {
		A: "${command:op read op://v/i}", B: "${command:echo $HOME}", C: "${command:a %NAME%}"}}]`,
		Options{Env: lookup(nil), Sources: &Sources{
			Keyring: func(string) (string, error) { return "", nil },
			Command: func([]string, map[string]string) (string, error) {
				return "op://is-a-value", nil
			},
		}})
	if err != nil || len(loaded.Warnings) > 0 {
		t.Error(err, loaded.Warnings)
	}
}

func TestSourceShown(t *testing.T) {
	s := expand.ValueSource{Kind: expand.Command, Words: []string{"op", "--token", "x"}}
	r := newSourceReader("g.yaml", Options{Env: lookup(nil)})
	r.access = &Sources{}
	if _, err := r.lookUp(s); err == nil || err.Problem != "${command:op …} is not read" {
		t.Error(err)
	}
}
