package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// write writes files below dir, by slash-separated path.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLookup checks which of several files is loaded: each file has its name in log.level.
func TestLookup(t *testing.T) {
	const (
		cwd   = "cwd/gateway.yaml"
		xdg   = "xdg/mcp-gateway/config.yaml"
		user  = "home/.config/mcp-gateway/config.yaml"
		other = "home/else.yaml"
	)
	for _, tc := range []struct {
		name  string
		files []string
		path  string            // --config, below the root
		env   map[string]string // values below the root
		want  string            // "" = none
	}{
		{name: "no file"},
		{name: "flag first", files: []string{other, cwd, xdg}, path: other,
			env:  map[string]string{"GATEWAY_CONFIG": "/" + cwd, "XDG_CONFIG_HOME": "/xdg"},
			want: other},
		{name: "flag with ~", files: []string{other, cwd}, path: "~/else.yaml",
			env: map[string]string{"HOME": "/home"}, want: other},
		{name: "then GATEWAY_CONFIG", files: []string{other, cwd},
			env: map[string]string{"GATEWAY_CONFIG": "/" + other}, want: other},
		{name: "GATEWAY_CONFIG with ~", files: []string{other, cwd},
			env: map[string]string{"GATEWAY_CONFIG": "~/else.yaml", "HOME": "/home"}, want: other},
		{name: "GATEWAY_CONFIG empty", files: []string{cwd},
			env: map[string]string{"GATEWAY_CONFIG": ""}, want: cwd},
		{name: "then the directory", files: []string{cwd, xdg},
			env: map[string]string{"XDG_CONFIG_HOME": "/xdg"}, want: cwd},
		{name: "then XDG", files: []string{xdg, user},
			env: map[string]string{"XDG_CONFIG_HOME": "/xdg", "HOME": "/home"}, want: xdg},
		{name: "XDG instead of ~/.config", files: []string{user},
			env: map[string]string{"XDG_CONFIG_HOME": "/xdg", "HOME": "/home"}},
		{name: "~/.config without XDG", files: []string{user},
			env: map[string]string{"HOME": "/home"}, want: user},
		{name: "relative XDG is ignored", files: []string{user},
			env: map[string]string{"XDG_CONFIG_HOME": "xdg", "HOME": "/home"}, want: user},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for _, file := range tc.files {
				write(t, root,
					map[string]string{file: "state: from-" + filepath.Base(filepath.Dir(file)) +
						"\n"})
			}
			vars := map[string]string{}
			for name, value := range tc.env {
				if filepath.IsAbs(value) || len(value) > 0 && value[0] == '/' {
					value = filepath.Join(root, value)
				}
				vars[name] = value
			}
			opts := Options{Env: lookup(vars), Dir: filepath.Join(root, "cwd")}
			if opts.Path = tc.path; tc.path != "" && tc.path[0] != '~' {
				opts.Path = filepath.Join(root, tc.path)
			}
			loaded, err := Load(opts)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if b := loaded.Config.Backends; loaded.Source != "" || len(b) != 1 ||
					b[0].Name != "demo" || b[0].Embedded != "demo" || !b[0].Enabled {
					t.Fatalf("got %q with %+v, want the demo", loaded.Source, b)
				}
				warnings := strings.Join(loaded.Warnings, "\n")
				homeless := vars["HOME"]+vars["XDG_CONFIG_HOME"] == ""
				if homeless != strings.Contains(warnings, "HOME is not set") {
					t.Errorf("warnings: %q", loaded.Warnings)
				}
				return
			}
			if want := filepath.Join(root, tc.want); loaded.Source != want {
				t.Errorf("Source is %q, want %q", loaded.Source, want)
			}
			if want := "from-" + filepath.Base(filepath.Dir(tc.want)); loaded.Config.State != want {
				t.Errorf("State is %q, want %q", loaded.Config.State, want)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "no.yaml")
	long := filepath.Join(dir, "long.yaml")
	if err := errors.Join(os.WriteFile(long, nil, 0o600), os.Truncate(long, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		opts Options
		want string
		is   error
	}{
		{"flag", Options{Path: missing, Env: lookup(nil)}, missing + ": no such file",
			fs.ErrNotExist},
		{"variable", Options{Env: lookup(map[string]string{"GATEWAY_CONFIG": missing})},
			missing + ": GATEWAY_CONFIG: no such file", fs.ErrNotExist},
		{"without end", Options{Path: long, Env: lookup(nil)}, long + ": it is longer than 64 MiB",
			nil},
		{"directory", Options{Path: dir, Env: lookup(nil)}, dir + ": is a directory", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && tc.is == nil {
				t.Skip("Windows has other error texts")
			}
			_, err := Load(tc.opts)
			if err == nil || err.Error() != tc.want || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if one := (*Error)(nil); !errors.As(err, &one) {
				t.Errorf("%T is no *Error", err)
			} else if (tc.is != nil) != (one.Hint == "check the path, or create a configuration "+
				"with gateway import -o FILE") {
				t.Errorf("the hint is %q", one.Hint)
			}
		})
	}
}

func TestStateDir(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are of another system")
	}
	for _, tc := range []struct {
		state string
		env   map[string]string
		want  string
	}{
		{`""`, map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/mcp-gateway"},
		{`""`, map[string]string{"HOME": "/h"}, "/h/.local/state/mcp-gateway"},
		{`""`, map[string]string{"XDG_STATE_HOME": "relative", "HOME": "/h"},
			"/h/.local/state/mcp-gateway"},
		{`""`, nil, ""},
		{`none`, map[string]string{"HOME": "/h"}, ""},
		{`~`, map[string]string{"HOME": "/h"}, "/h"},
		{`~/x`, map[string]string{"HOME": "/h"}, "/h/x"},
		{`~x`, map[string]string{"HOME": "/h"}, "~x"},
		{`rel/x`, nil, "rel/x"},
	} {
		loaded, err := load(source{path: "g.yaml", data: []byte("state: " + tc.state)},
			Options{Env: lookup(tc.env)})
		if err != nil {
			t.Errorf("%s: %v", tc.state, err)
		} else if got := loaded.Config.StateDir; got != tc.want {
			t.Errorf("%s with %v: got %q, want %q", tc.state, tc.env, got, tc.want)
		}
	}
	_, err := load(source{path: "g.yaml",
		data: []byte("state: ~/x\nbackends:\n- name: a\n  command: x\n  cwd: ~\n")},
		Options{Env: lookup(nil)})
	want := "g.yaml:1: state: ~ is not known: HOME is not set\ng.yaml:5: backend \"a\": cwd: ~ is not known: HOME is not set"
	if err == nil || err.Error() != want {
		t.Errorf("without HOME: got %v, want %s", err, want)
	}
}

// A gateway reads its file again after a change notification, and does nothing if the file is
// unchanged.
func TestUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("backends: [{name: a, command: a}]")
	var refused error
	opts := Options{Path: path, Local: true, Approve: func(string, []byte) error { return refused }}
	l, err := Load(opts)
	if err != nil {
		t.Fatal(err)
	}
	if !l.Unchanged(opts) {
		t.Error("a file that was just loaded counts as changed")
	}
	refused = errors.New("not approved any more")
	if l.Unchanged(opts) {
		t.Error("a file that is no longer approved counts as unchanged")
	}
	refused = nil
	write("backends: [{name: a, command: b}]")
	if l.Unchanged(opts) {
		t.Error("a file with another text of the same length counts as unchanged")
	}
	write("backends: [{name: a, command: a}]")
	if !l.Unchanged(opts) {
		t.Error("a file with its earlier text counts as changed")
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && l.Unchanged(opts) {
		t.Error("a file that every user can now change counts as unchanged")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if l.Unchanged(opts) {
		t.Error("a removed file counts as unchanged")
	}
}

// If a file is named, no other file is searched for.
func TestSearchPaths(t *testing.T) {
	env := map[string]string{"HOME": "/home/u"}
	user := filepath.Join("/home/u", ".config", "mcp-gateway", "config.yaml")
	if got := SearchPaths(Options{Env: lookup(env)}); len(got) != 2 || got[0] != "gateway.yaml" ||
		got[1] != user {
		t.Errorf("%q", got)
	}
	if got := SearchPaths(Options{Env: lookup(env), Path: "x.yaml"}); got != nil {
		t.Errorf("%q", got)
	}
	env["GATEWAY_CONFIG"] = "x.yaml"
	if got := SearchPaths(Options{Env: lookup(env)}); got != nil {
		t.Errorf("%q", got)
	}
}
