package pins

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"mcpgateway/internal/config"
)

func TestPathOf(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		"gateway.yaml": "gateway.lock", "config.yaml": "config.lock", ".mcp.json": ".mcp.lock",
		"x": "x.lock", ".yaml": ".yaml.lock", "x.lock": "x.lock.lock", "a.b.yml": "a.b.lock",
	} {
		if got := PathOf(filepath.Join(dir, name)); got != filepath.Join(dir, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := PathOf("gateway.yaml"); got != "gateway.lock" {
		t.Error(got)
	}
	for _, none := range []string{"", dir, os.DevNull} {
		if got := PathOf(none); got != "" {
			t.Errorf("%q has the lock file %s", none, got)
		}
	}
}

// lockOf returns a lock with the tools of one backend.
func lockOf(tools ...string) *Lock {
	l, all := new(Lock), make(Tools)
	for i, tool := range tools {
		all[fmt.Sprint("tool", i)] = New([]byte(tool))
	}
	l.Approve("gh", all, []string{"tool0"})
	return l
}

// The lock file is the same at each writing, and readable: a text of several lines has a line for
// each, the fields are sorted, and characters that are not printable are visible.
func TestLockFileIsReadable(t *testing.T) {
	l := lockOf(`{"name":"tool0","inputSchema":{"type":"object","properties":{"b":{"default":1.0},
		"a":{}}},"description":"One.\n\nTwo \u200b\"x\" \ud83d\ude00 \udb40\udc41"}`,
		`{"name":"tool1"}`)
	l.Backends["none"] = Tools{}
	l.Names["odd name: #\n"] = "gh"
	text, err := l.encode(maxFile)
	if err != nil {
		t.Fatal(err)
	}
	const want = header + `version: 1
names:
  "odd name: #\u000a": gh
  tool0: gh
backends:
  gh:
    tool0:
      description:
        - "One."
        - ""
        - "Two \u200b\"x\" 😀 \U000e0041"
      definition: |
        {
          "inputSchema": {
            "properties": {
              "a": {},
              "b": {
                "default": 1
              }
            },
            "type": "object"
          }
        }
    tool1: {}
  none: {}
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	requireSame(t, l, text)
}

// Every name of a tool and of a backend can be read again, so that no name makes the file unusable.
func TestUnusualNamesAreReadable(t *testing.T) {
	long := strings.Repeat("\u200b", 340)
	for _, name := range []string{"null", "Null", "true", "1e3", "0x10", "2027-01-31", "_", "-",
		"x: y", "? x", "- x", "#x", "'", "\"", "\\", " x ", strings.Repeat("x", 1024), long} {
		l := lockOf(`{"name":"tool0","` + long + `":1}`)
		for _, backend := range []string{"null", "true", "1e3", "-"} { // valid names
			l.Backends[backend] = Tools{name: New([]byte(`{"description":"a\nb","x":1}`)),
				"other": New([]byte(`{}`))}
			l.Names[name+backend] = backend
		}
		for _, most := range []int{maxStored, 0} {
			requireSame(t, l, l.encodeWith(most))
		}
	}
}

// requireSame checks that a text has the content of a lock.
func requireSame(t *testing.T, want *Lock, text []byte) {
	t.Helper()
	got, err := parse("gateway.lock", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if !maps.Equal(got.Names, want.Names) || len(got.Backends) != len(want.Backends) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for backend, tools := range want.Backends {
		if len(tools) != len(got.Backends[backend]) {
			t.Errorf("%d tools of %s", len(got.Backends[backend]), backend)
		}
		for name, d := range tools {
			if is := got.Backends[backend][name]; is == nil || is.Digest() != d.Digest() ||
				is.ChangedFields(d) != nil {
				t.Errorf("%s differs in\n%s", name, text)
			}
		}
	}
}

// Of a large definition, only the hashes of the largest fields are stored. They identify the same
// definition.
func TestLargeDefinitionIsStoredAsHashes(t *testing.T) {
	tool := func(letter string) string {
		return `{"name":"x","description":"short","inputSchema":{"type":"object","title":"` +
			strings.Repeat(letter, maxStored) + `"}}`
	}
	l := lockOf(tool("a"))
	text, err := l.encode(maxFile)
	if err != nil || len(text) > 1000 || !strings.Contains(string(text), `description: "short"`) ||
		!strings.Contains(string(text), "        inputSchema: sha256:") {
		t.Fatalf("%v\n%.2000s", err, text)
	}
	requireSame(t, l, text)
	again, err := parse("gateway.lock", text)
	if err != nil {
		t.Fatal(err)
	}
	was, is := again.Backends["gh"]["tool0"], New([]byte(tool("b")))
	if got := was.ChangedFields(is); !slices.Equal(got, []string{"inputSchema"}) {
		t.Errorf("changed: %q", got)
	}
	diff := was.Diff(is)
	if len(diff) != 1 || !strings.HasPrefix(diff[0].Old, "sha256:") || diff[0].Path != "inputSchema" {
		t.Errorf("%.200v", diff)
	}
	// A file that has only the hash keeps it.
	if text2, err := again.encode(maxFile); err != nil || string(text2) != string(text) {
		t.Errorf("%v\n%s", err, text2)
	}
}

// If the texts of all definitions exceed the limit of the file, all fields are stored as hashes.
func TestLockFileBeyondItsLimitHasOnlyHashes(t *testing.T) {
	var tools []string
	const limit = 1 << 20
	for range limit/maxStored + 10 {
		tools = append(tools, `{"description":"`+strings.Repeat("a", maxStored-100)+`"}`)
	}
	l := lockOf(tools...)
	text, err := l.encode(limit)
	if err != nil || len(text) > limit || strings.Contains(string(text), "aaa") {
		t.Fatalf("%v, %d bytes", err, len(text))
	}
	requireSame(t, l, text)
}

// More names than fit into the file are an error, not a file that cannot be read.
func TestLockFileIsBounded(t *testing.T) {
	l := lockOf(`{}`)
	const limit = 1 << 20
	for i := range limit/maxStored + 1 {
		l.Names[fmt.Sprint(i, strings.Repeat("n", maxStored))] = "gh"
	}
	if text, err := l.encode(limit); err == nil {
		t.Errorf("%d bytes", len(text))
	}
}

func TestUpdateWritesFileAtomically(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.lock")
	if l, err := Read(path); err != nil || l.Problem != nil || len(l.Backends) > 0 {
		t.Fatalf("a missing file: %+v, %v", l, err)
	}
	if _, err := Update(path, "", func(*Lock) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("written without a change")
	}
	put := func(l *Lock) bool { l.Approve("a", Tools{}, nil); return true }
	if _, err := Update(path, filepath.Join(dir, "x", "lock"), put); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v: others need not be able to read the file", info, err)
	}
	// The permissions that the user has chosen stay.
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Update(path, "", put); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 2 {
		t.Errorf("files: %q", left)
	}
}

// Gateways that share a file do not lose each other's entries.
func TestConcurrentUpdatesAreMerged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.lock")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := Update(path, filepath.Join(dir, "lock"), func(l *Lock) bool {
				l.Approve(fmt.Sprint("b", i), Tools{"t": New([]byte(`{}`))}, nil)
				return true
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if l, err := Read(path); err != nil || len(l.Backends) != 8 {
		t.Errorf("%+v, %v", l, err)
	}
}

// A damaged, too large or newer file is an error with the file and, if possible, the line. It is
// never overwritten.
func TestUnusableLockFile(t *testing.T) {
	const start = "version: 1\nbackends:\n  gh:\n    t:\n"
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.lock")
	for text, want := range map[string]string{
		"version: 2\nmore: x":                           ":1: this gateway reads version 1, not \"2\"",
		"version: [1]":                                  ":1: this gateway reads version 1",
		"names: {}":                                     ": has no version",
		"version: 1\nnames: [a]":                        ":2: names must be a mapping",
		"version: 1\nnames: {a: [b]}":                   ":2: the backend of a name must be a string",
		"version: 1\nnames: {a: b, a: c}":               `:2: "a" occurs twice`,
		"version: 1\nnames:\n  &x a: b\n  c: *x":        ":4: aliases are not supported",
		"version: 1\nmore: x":                           `:2: unknown key "more"`,
		"version: 1\nbackends: {a: 1}":                  ":2: a backend must be a mapping",
		"version: 1\nbackends: {a: {b: []}}":            ":2: a tool must be a mapping",
		start + "      text: x":                         `:5: unknown key "text"`,
		start + "      definition: {}":                  ":5: definition must be a string",
		start + "      definition: '[]'":                ":5: definition must be a text with a JSON object",
		start + "      definition: '{'":                 ":5: definition must be a text with a JSON object",
		start + "      description: {}":                 ":5: description must be a string",
		start + "      description: [[]]":               ":5: a line of description must be a string",
		start + "      hashes: {a: sha256:00}":          ":5: a hash must be sha256: and 64 hexadecimal digits",
		start + "      hashes: {a: b}":                  ":5: a hash must be sha256: and 64 hexadecimal digits",
		start + "      definition: '{\"a\":1,\"a\":2}'": `:5: the field "a" occurs twice`,
		start + "      description: a\n      definition: '{\"description\":\"b\"}'": `:6: the field "description" occurs twice`,
		start + "<<<<<<< HEAD\n=======\n>>>>>>> x":                                  ":5: contains a merge conflict",
		"<<<<<<< HEAD":                 ":1: contains a merge conflict",
		"version: 1\n\tx":              ":2: not valid YAML",
		"\x00":                         ":1: not valid YAML",
		"[]":                           ":1: the file must be a mapping",
		strings.Repeat(" ", maxFile+1): ": it is too large",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Read(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+want) {
			t.Errorf("%.100q: got %v, want %s", text, err, want)
			continue
		}
		if one, ok := errors.AsType[*config.Error](err); !ok || one.Hint == "" || l.Problem != err {
			t.Errorf("%.100q: no hint, or no problem in %+v", text, l)
		}
		if _, err := Update(path, "", func(*Lock) bool { return true }); err == nil {
			t.Errorf("%.100q: updated", text)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Errorf("%.100q: overwritten", text)
		}
	}
	if _, err := Read(dir); err == nil || err.Error() != dir+": it is not a regular file" {
		t.Errorf("a directory: %v", err)
	}
	for _, empty := range []string{"", "# nothing\n"} {
		if l, err := parse(path, []byte(empty)); err != nil || len(l.Backends) > 0 {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

// An approval of a backend replaces its tools and names, and takes names from other backends.
func TestApproveMovesNames(t *testing.T) {
	l := new(Lock)
	l.Approve("a", Tools{"x": New([]byte(`{}`))}, []string{"x", "y"})
	l.Approve("b", Tools{}, []string{"y", "z"})
	l.Approve("a", Tools{}, []string{"w"})
	if want := map[string]string{"w": "a", "y": "b", "z": "b"}; !maps.Equal(l.Names, want) {
		t.Errorf("%v", l.Names)
	}
	if len(l.Backends) != 2 || len(l.Backends["a"]) != 0 {
		t.Errorf("%v", l.Backends)
	}
}
