package catalogcache

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mcpgateway/catalog"
)

// fileNames returns the names of the files in a directory.
func fileNames(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestSaveAndLoad(t *testing.T) {
	path := Path(filepath.Join(t.TempDir(), "new"), "b", "0123456789ab")
	cache := Cache{Path: path, MaxSize: 1 << 20, Log: slog.New(slog.DiscardHandler)}
	if _, ok := cache.Load(); ok {
		t.Error("loaded a missing file")
	}
	cache.Touch() // does nothing
	saved := Content{Instructions: "i", Unprobeable: true}
	saved.Raw[catalog.Tools] = []byte(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
	if !cache.Save(saved) {
		t.Fatal("not saved")
	}
	c, ok := cache.Load()
	if !ok || c.Instructions != "i" || string(c.Capabilities) != "{}" || !c.Unprobeable ||
		!bytes.Equal(c.Raw[catalog.Tools], saved.Raw[catalog.Tools]) ||
		len(c.Items[catalog.Tools]) != 1 || IsComplete(c.Raw) {
		t.Errorf("loaded %+v, %t", c, ok)
	}
	month := time.Now().Add(-30 * 24 * time.Hour)
	if err := os.Chtimes(path, month, month); err != nil {
		t.Fatal(err)
	}
	cache.Touch()
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("last use: %v, %v", info.ModTime(), err)
	}
	cache.MaxSize = 10
	if _, ok := cache.Load(); ok {
		t.Error("loaded a file that is too large")
	}
	if (Cache{}).Save(saved) {
		t.Error("saved without a file")
	}
}

func TestPrune_OldFiles(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	const day = 24 * time.Hour
	for _, f := range []struct {
		name, text string
		age        time.Duration
	}{
		{"old-0123456789ab.json", `{"version":3}`, 91 * day},
		{"old-0123456789ac.json", "", 91 * day}, // as after a power failure
		{"young-0123456789ab.json", `{"version":3}`, 89 * day},
		{"young-0123456789ab.123.tmp", "x", 59 * time.Minute},
		{"old-0123456789ab.123.tmp", "x", 61 * time.Minute},
		// Files of other programs.
		{"notes.json", `{"version":3}`, 1000 * day},
		{"main-0123456789ab.json", `{"files":[]}`, 1000 * day},
		{"old-0123456789ab.tmp", "x", 1000 * day},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-f.age), now.Add(-f.age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "dir-0123456789ab.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	prune(dir, now)
	want := []string{"dir-0123456789ab.json", "main-0123456789ab.json", "notes.json",
		"old-0123456789ab.tmp",
		"young-0123456789ab.123.tmp", "young-0123456789ab.json"}
	if got := fileNames(t, dir); !slices.Equal(got, want) {
		t.Errorf("left: %q", got)
	}
}

func TestPrune_TooManyFiles(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for i := range maxFiles + 7 {
		path := filepath.Join(dir, fmt.Sprintf("b%03d-0123456789ab.json", i))
		if err := os.WriteFile(path, []byte(`{"version":3}`), 0o600); err != nil {
			t.Fatal(err)
		}
		used := now.Add(-time.Duration(i) * time.Minute)
		if err := os.Chtimes(path, used, used); err != nil {
			t.Fatal(err)
		}
	}
	prune(dir, now)
	if got := fileNames(t, dir); len(got) != maxFiles ||
		got[len(got)-1] != "b499-0123456789ab.json" {
		t.Errorf("%d files are left, the last is %s", len(got), got[len(got)-1])
	}
}

// FuzzCatalogCache checks that each content of a cache file is either rejected, or has the same
// meaning after it is written again.
func FuzzCatalogCache(f *testing.F) {
	for _, text := range []string{
		"", "{}", `{"version":3}`, `{"version":1}`, `[]`, `{"version":3,"version":2}`,
		`{"version":3,"instructions":"<i>","capabilities":{"tools":{}},"era":"legacy","tools":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]},` +
			`"prompts":{"prompts":[{"name":"p"}]},"resources":{"resources":[{"uri":"a:b","name":"r"}]},"resourceTemplates":{"resourceTemplates":[]}}`,
		`{"version":2,"instructions":7,"capabilities":[],"tools":{"tools":[]},"prompts":{"prompts":[]},"resources":{"resources":[]},"resourceTemplates":{"resourceTemplates":[]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parse(text)
		if err != nil {
			return
		}
		again, err := parse(c.encode())
		if err != nil {
			t.Fatalf("the cache written again is refused: %v\n%q\n%q", err, text, c.encode())
		}
		if again.Instructions != c.Instructions ||
			!bytes.Equal(again.Capabilities, c.Capabilities) || again.Unprobeable != c.Unprobeable {
			t.Errorf("%q\nbecomes %q", text, c.encode())
		}
		for k := range catalog.Kind(catalog.NumKinds) {
			if !bytes.Equal(again.Raw[k], c.Raw[k]) || len(again.Items[k]) != len(c.Items[k]) {
				t.Errorf("%s: %q becomes %q", k.ResultMember(), c.Raw[k], again.Raw[k])
			}
		}
	})
}
