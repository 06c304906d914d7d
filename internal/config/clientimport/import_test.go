package clientimport

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpgateway/internal/config"
)

// TestImport runs every testdata/*.txtar. The comment contains the files to import; none = the
// usual files. home/ and work/ are input, want.yml and want.notes the expected output. $ROOT stands
// for the parent directory of home/ and work/.
func TestImport(t *testing.T) {
	for _, file := range glob(t, "testdata/*.txtar") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			root := filepath.ToSlash(t.TempDir())
			want := map[string]string{}
			for _, f := range archive.Files {
				if strings.HasPrefix(f.Name, "want.") {
					want[f.Name] = string(f.Data)
				} else {
					write(t, root,
						map[string]string{f.Name: strings.ReplaceAll(string(f.Data), "$ROOT",
							root)})
				}
			}
			im := newImporter(Options{Home: root + "/home", Cwd: root + "/work", OS: "linux",
				Env: lookup(nil)})
			var files []string
			for _, name := range importLine(archive.Comment) {
				files = append(files, filepath.Join(root, filepath.FromSlash(name)))
			}
			if files == nil {
				files = im.usualFiles()
			}
			var errs config.Errors
			for _, file := range files {
				if err := im.readFile(file); err != nil {
					errs = append(errs, err)
				}
			}
			im.finish()
			notes := strings.Join(im.result.Notes, "\n") + "\n"
			if len(errs) > 0 {
				notes += "error: " + strings.ReplaceAll(errs.Error(), "\n", "\nerror: ") + "\n"
			}
			got := map[string]string{
				"want.yml":   strings.ReplaceAll(string(im.result.YAML()), root, "$ROOT"),
				"want.notes": strings.ReplaceAll(notes, root, "$ROOT"),
			}
			if *update {
				rewrite(t, file, archive, got)
			} else if !maps.Equal(got, want) {
				t.Errorf("got\n%s\n%s\nwant\n%s\n%s", got["want.yml"], got["want.notes"],
					want["want.yml"], want["want.notes"])
			}
			for name, secret := range im.secrets.variables {
				if secret != unknownValue &&
					strings.Contains(got["want.yml"]+got["want.notes"], secret) {
					t.Errorf("the secret in %s shows", name)
				}
			}
			mustLoad(t, im)
		})
	}
}

// importLine finds the line "import: a b" in the comment of an archive.
func importLine(comment []byte) []string {
	for line := range strings.Lines(string(comment)) {
		if names, ok := strings.CutPrefix(line, "import: "); ok {
			return strings.Fields(names)
		}
	}
	return nil
}

func rewrite(t *testing.T, file string, archive *txtar.Archive, got map[string]string) {
	t.Helper()
	archive.Files = slices.DeleteFunc(archive.Files,
		func(f txtar.File) bool { return strings.HasPrefix(f.Name, "want.") })
	for _, name := range slices.Sorted(maps.Keys(got)) {
		archive.Files = append(archive.Files, txtar.File{Name: name, Data: []byte(got[name])})
	}
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mustLoad checks that the result can be loaded when the variables are set.
func mustLoad(t *testing.T, im *importer) *config.Config {
	t.Helper()
	set := func(name string) (string, bool) {
		value, known := im.secrets.variables[name]
		switch {
		case name == "HOME":
			return "/home/u", true
		case value == unknownValue:
			value = "set"
		}
		return value, known
	}
	loaded, err := config.LoadData("imported.yaml", im.result.YAML(), config.Options{Env: set})
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Config
}

// TestImportEqualsLoad loads a file of Claude Code directly, and imports and loads it: the
// backends must be equal except for the order of Expanded.
func TestImportEqualsLoad(t *testing.T) {
	const file = `{ "mcpServers": {
	"plain": { "command": "npx", "args": ["-y", "@scope/server", "costs 5$ or $5", "a: b", "- c", "# d", "", "tab\there", "two\nlines", "~", "null", "8080", "*x"] },
	"secrets": {
		"command": "docker",
		"args": ["run", "-e", "GITHUB_TOKEN=ghp_0123456789abcdefghij", "--api-key=hunter2", "--token", "t0ken$", "--header", "Authorization: Bearer abcdef",
			"postgres://user:pa$w@db:5432/x?sslmode=off", "sk-proj-0123456789abcdef"],
		"env": { "API_KEY": "k1", "DATABASE_URL": "postgres://u:p@h/db", "LOG": "debug", "lower.token": "t1", "MULTI_SECRET": "a\nb: c" }
	},
	"also": { "command": "other", "env": { "API_KEY": "k2", "SAME_TOKEN": "k1" } },
	"old": { "type": "sse", "url": "https://old.example/sse" },
	"new": { "type": "http", "url": "https://new.example/mcp" },
	"web": { "url": "https://u:p%20w@h/s/Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA/mcp?api_key=q%26&mode=x", "headers": { "Authorization": "Bearer tok", "X-Api-Key": "xk", "Accept": "text/plain", "content-TYPE": "a/b", "Mcp-Session-Id": "s" } }
} }`
	direct, err := config.LoadData("direct.json", []byte(file), config.Options{Env: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	im := newImporter(Options{Home: "/nowhere", Cwd: "/nowhere", Env: lookup(nil)})
	if err := im.readData("/nowhere/.mcp.json", []byte(file)); err != nil {
		t.Fatal(err)
	}
	im.finish()
	imported := mustLoad(t, im)
	const note = `its keys headers.Accept, headers.content-TYPE, headers.Mcp-Session-Id`
	if all := strings.Join(im.result.Notes, "\n"); !strings.Contains(all, note) {
		t.Errorf("the notes are %s", all)
	}
	if all := strings.Join(direct.Warnings, "\n"); !strings.Contains(all, note) {
		t.Errorf("the warnings are %s", all)
	}
	if want, got := direct.Config.Backends, imported.Backends; !equal(want, got) {
		t.Errorf("want %+v\ngot  %+v\n%s", want, got, im.result.YAML())
	}
	for _, secret := range []string{"ghp_", "hunter2", "t0ken", "abcdef", "pa$", "sk-", "k1", "k2",
		"u:p", "a\nb", "tok\"", "xk", "q%26", "Zm9v"} {
		if all := string(im.result.YAML()) +
			strings.Join(im.result.Notes, "\n"); strings.Contains(all, secret) {
			t.Errorf("%q shows in\n%s", secret, all)
		}
	}
}

func equal(a, b []config.Backend) bool {
	return slices.EqualFunc(a, b, func(a, b config.Backend) bool {
		return a.Name == b.Name && a.Command == b.Command && a.URL == b.URL &&
			a.Transport == b.Transport &&
			slices.Equal(a.Args, b.Args) && maps.Equal(a.Env, b.Env) &&
			maps.Equal(a.Headers, b.Headers)
	})
}

func TestImportNothing(t *testing.T) {
	dir := t.TempDir()
	im, err := Read(nil, Options{Home: dir, Cwd: dir, Env: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Notes) != 0 || !im.Empty() || im.YAML() != nil ||
		!strings.Contains(im.Hint(), "Claude Code, Claude Desktop, Cursor") {
		t.Errorf("got %q\n%s%s", im.Notes, im.YAML(), im.Hint())
	}
	im, err = Read([]string{filepath.Join(dir, "no.json")},
		Options{Home: dir, Cwd: dir, Env: lookup(nil)})
	if !errors.Is(err, os.ErrNotExist) || im == nil {
		t.Errorf("got %v, %v", im, err)
	}
}

// A server is not imported if its URL is unsupported for all values of its variables.
func TestImportSkipsUnsupportedURLs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.json": `{ "mcpServers": {
		"socket": { "url": "wss://h?token=${TOKEN}" }, "typo": { "url": "Gttps://h/${PATH_OF}" },
		"open": { "url": "${SCHEME}://h" }, "all": { "url": "${URL}" }, "host": { "url": "https://${HOST}/mcp" } } }`})
	im, err := Read([]string{filepath.Join(dir, "a.json")},
		Options{Home: dir, Cwd: dir, Env: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	out := string(im.YAML())
	for name, want := range map[string]bool{"socket": false, "typo": false, "open": true,
		"all": true, "host": true} {
		if strings.Contains(out, "name: "+name+"\n") != want {
			t.Errorf("%s is there: %v\n%s", name, !want, out)
		}
	}
	notes := strings.Join(im.Notes, "\n")
	if strings.Count(notes, "must begin with http:// or https://") != 2 {
		t.Errorf("notes: %s", notes)
	}
}

// TestImportEmptyFile: the hint contains the files without servers.
func TestImportEmptyFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir,
		map[string]string{"a.json": `{ "mcpServers": { "s": { "type": "ws", "url": "wss://h" } } }`})
	im, err := Read([]string{filepath.Join(dir, "a.json")},
		Options{Home: dir, Cwd: dir, Env: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if !im.Empty() || im.YAML() != nil || len(im.Notes) != 1 ||
		im.Hint() != "looked at ~/a.json; name the file that has them: gateway import FILE" {
		t.Errorf("got %q\n%s%s", im.Notes, im.YAML(), im.Hint())
	}
}

// TestImportSkipsGateways: a gateway on this machine is recognized by its response, at any port, or
// by its name. No request is sent to other machines.
func TestImportSkipsGateways(t *testing.T) {
	var asked []string
	im := newImporter(Options{Home: "/h", Cwd: "/w", Env: lookup(nil),
		IsGateway: func(url string) bool {
			asked = append(asked, url)
			return !strings.Contains(url, ":9")
		}})
	file := `{ "mcpServers": {
		"hub": { "url": "http://127.0.0.1:7432/mcp" },
		"hub6": { "url": "https://[::1]:7432/mcp" },
		"older": { "url": "http://LocalHost:7432/sse", "type": "sse" },
		"gateway": { "url": "http://localhost:9001/mcp" },
		"usual": { "url": "http://localhost:7420/mcp" },
		"other": { "url": "http://localhost:9002/mcp" },
		"elsewhere": { "url": "http://gateway.example:7432/mcp" },
		"path": { "url": "http://localhost:7432/other" },
		"variable": { "url": "http://localhost:${PORT}/mcp" }
	} }`
	if err := im.readData("/w/.mcp.json", []byte(file)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range im.result.servers {
		names = append(names, s.name)
	}
	if got, want := strings.Join(names, " "), "other elsewhere path variable"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	wantAsked := []string{
		"http://127.0.0.1:7432/mcp", "https://[::1]:7432/mcp", "http://LocalHost:7432/sse",
		"http://localhost:9002/mcp",
	}
	if !slices.Equal(asked, wantAsked) {
		t.Errorf("asked %s, want %s", asked, wantAsked)
	}
	if len(im.result.Notes) != 5 ||
		im.result.Notes[0] != `/w/.mcp.json: server "hub" is not imported: it is this gateway itself` {
		t.Errorf("notes: %q", im.result.Notes)
	}
}

// TestImportListsUnsetVariables: a variable that the user has set need not be set again, unless it
// replaces a secret.
func TestImportListsUnsetVariables(t *testing.T) {
	im := newImporter(Options{Home: "/h", Cwd: "/w",
		Env: lookup(map[string]string{"HOME": "/h", "A_KEY": "other"})})
	file := `{ "mcpServers": { "a": { "command": "${HOME}/x", "args": ["${B}", "${C:-c}", "${D:-${E}}"], "env": { "A_KEY": "v" } } } }`
	if err := im.readData("/w/.mcp.json", []byte(file)); err != nil {
		t.Fatal(err)
	}
	im.finish()
	want := "set before you start the gateway: B, E, A_KEY"
	if !slices.Contains(im.result.Notes, want) {
		t.Errorf("got %q, want %s", im.result.Notes, want)
	}
}

// In the home directory, the files of the user's clients belong to the user, not to a project.
func TestImportInHomeDirectory(t *testing.T) {
	home := t.TempDir()
	write(t, home, map[string]string{
		".cursor/mcp.json":      `{"mcpServers": {"a": {"command": "x"}}}`,
		".gemini/settings.json": `{"mcpServers": {"b": {"command": "x"}}}`,
		".mcp.json":             `{"mcpServers": {"c": {"command": "x"}}}`,
	})
	im := newImporter(Options{Home: home, Cwd: home, OS: "linux", Env: lookup(nil)})
	got := map[string]bool{}
	for _, file := range im.usualFiles() {
		got[filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file)] = im.foundFiles[file]
	}
	want := map[string]bool{".cursor/mcp.json": false, ".gemini/settings.json": false,
		filepath.Base(home) + "/.mcp.json": true}
	if !maps.Equal(got, want) {
		t.Errorf("of a project: %v, want %v", got, want)
	}
}

// The command, cwd and PATH of an imported entry determine whether its program is a gateway.
func TestImportOfOtherProgramNamedGateway(t *testing.T) {
	dir, exe := t.TempDir(), ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	program := filepath.Join(dir, "gateway"+exe)
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	entries := map[string]string{
		"a": `"command": "gateway", "env": {"PATH": "` + filepath.ToSlash(dir) + `"}`,
		"b": `"command": "./gateway", "cwd": "` + filepath.ToSlash(dir) + `"`,
		"c": `"command": "gateway", "args": ["run"]`,
		"d": `"command": "gateway", "args": ["-c", "x.yaml"]`, "e": `"command": "gateway"`,
	}
	var text []string
	for name, entry := range entries {
		text = append(text, `"`+name+`": {`+entry+`}`)
	}
	data := []byte(`{"mcpServers": {` + strings.Join(text, ",") + `}}`)
	loaded, err := config.LoadData("mcp.json", data, config.Options{Env: lookup(nil)})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range loaded.Config.Backends {
		if want := b.Name < "d"; b.Enabled != want {
			t.Errorf("%s: enabled is %t", b.Name, b.Enabled)
		}
	}
	path := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	im, err := Read([]string{path}, Options{Cwd: dir, Home: dir})
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := im.Count(); all != 3 {
		t.Errorf("imported %d servers, want 3:\n%s%q", all, im.YAML(), im.Notes)
	}
}
