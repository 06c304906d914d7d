package backends_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// cacheFile returns the one file in a state directory.
func cacheFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files in %s, want one: %v", len(files), dir, err)
	}
	return filepath.Join(dir, files[0].Name())
}

func TestCache_StoresCatalog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "mcp-gateway") // created by the first write
	const tools = `{"tools":[{"name":"búsqueda", "x-unknown":1.10,"inputSchema":{"type":"object"},"description":"<\u003c>"},{"name":"hidden","inputSchema":{"type":"object"}}]}`
	o := backends.Options{Backends: legacyBackends("a", "b"), StateDir: dir}
	o.Backends[0].Tools = config.ToolSettings{Deny: []string{"hidden"}}
	withHarness(t, o, func(t *testing.T, h *harness) {
		if _, err := os.Stat(dir); err == nil {
			t.Error("the directory was created before the first write")
		}
		a := h.nextProcess("a")
		a.ServeHandshake(`{"protocolVersion":"2025-11-25","instructions":"<Search> \"all\""}`)
		a.ServeToolsList(tools)
		h.wantNames("b_squeda")
		path := cacheFile(t, dir)
		if info, err := os.Stat(path); runtime.GOOS != "windows" &&
			(err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
	text, err := os.ReadFile(cacheFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"version":3,"instructions":"<Search> \"all\"","capabilities":{},"tools":` + tools +
		`,"prompts":{"prompts":[]},"resources":{"resources":[]},"resourceTemplates":{"resourceTemplates":[]}}` + "\n"; string(text) != want {
		t.Errorf("kept %s\nwant %s", text, want)
	}

	o.Backends[0].Tools = config.ToolSettings{} // the filters apply to the cached list
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.wantNames("b_squeda", "hidden")
		v := h.View()
		page, _ := v.Page(catalog.Tools, nil)
		list := string(page)
		if v.Complete || v.Instructions != "## a\n\n<Search> \"all\"" ||
			!strings.Contains(list, `"x-unknown":1.10`) {
			t.Errorf("complete: %v, instructions %q, list %s", v.Complete, v.Instructions, list)
		}
		if s := h.status("a"); s.Counts[catalog.Tools] != 2 || s.Settled {
			t.Errorf("status: %+v", s)
		}
		h.nextProcess("b").ServeStartup()
		synctest.Wait()
		if !h.View().Complete {
			t.Error("the View is not complete although all backends are cached or settled")
		}
		// The server now has fewer tools than the cache.
		h.nextProcess("a").ServeStartup("only")
		h.wantNames("only")
	})
	if text, _ := os.ReadFile(cacheFileFor(t, dir, "a-")); !strings.Contains(string(text),
		`"only"`) {
		t.Errorf("kept %s", text)
	}
}

// cacheFileFor returns the file whose name begins with prefix.
func cacheFileFor(t *testing.T, dir, prefix string) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if len(files) != 1 {
		t.Fatalf("files: %q", files)
	}
	return files[0]
}

// An unchanged list is not written again.
func TestCache_UnchangedListIsNotWritten(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	for round := range 2 {
		withHarness(t, o, func(t *testing.T, h *harness) {
			if round > 0 {
				h.wantNames("t")
				if err := os.Remove(cacheFile(t, o.StateDir)); err != nil {
					t.Fatal(err)
				}
			}
			h.nextProcess("a").ServeStartup("t")
			h.wantNames("t")
		})
	}
	if files, _ := os.ReadDir(o.StateDir); len(files) != 0 {
		t.Error("the cache was written without a change")
	}
}

// Another program under the same name is another backend.
func TestCache_BelongsToProgram(t *testing.T) {
	dir := t.TempDir()
	withHarness(t, backends.Options{Backends: legacyBackends("a"), StateDir: dir},
		func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup("t")
			h.wantNames("t")
		})
	for _, change := range []func(*config.Backend){
		func(b *config.Backend) { b.Command = "other" },
		func(b *config.Backend) { b.Args = []string{"x"} },
		func(b *config.Backend) { b.Cwd = "/" },
		func(b *config.Backend) { b.Command, b.URL = "", "http://127.0.0.1:1/mcp" },
		func(b *config.Backend) { b.Name = "b" },
	} {
		o := backends.Options{Backends: legacyBackends("a"), StateDir: dir}
		change(&o.Backends[0])
		withHarness(t, o, func(t *testing.T, h *harness) { h.wantNames() })
	}
	withHarness(t, backends.Options{Backends: legacyBackends("a"), StateDir: dir},
		func(t *testing.T, h *harness) { h.wantNames("t") })
}

// A file of the preceding version, which has no generation, is accepted.
func TestCache_EarlierVersion(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.wantNames("t")
	})
	path := cacheFile(t, o.StateDir)
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"version":3`, `"version":2`,
		1)), 0o600); err != nil {
		t.Fatal(err)
	}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.wantNames("t")
		if warnings := h.log.Warnings(); len(warnings) > 0 {
			t.Errorf("logged %q", warnings)
		}
	})
}

func TestCache_DamagedFileIsIgnored(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.wantNames("t")
	})
	path := cacheFile(t, o.StateDir)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good := string(whole)
	for name, text := range map[string]string{
		"empty":             "",
		"cut":               good[:len(good)/2],
		"not an object":     "[" + good + "]",
		"not a JSON object": strings.Replace(good, ":", "=", 1),
		"next format":       strings.Replace(good, `"version":3`, `"version":4`, 1),
		"no version":        strings.Replace(good, `"version":3,`, ``, 1),
		"as text":           strings.Replace(good, `"version":3`, `"version":"3"`, 1),
		"no capabilities": strings.Replace(good, `"capabilities":{`, `"capabilities":[],"x":{`,
			1),
		"no tools": strings.Replace(good, `"tools":[`, `"tools":{},"x":[`, 1),
		"UTF-8":    strings.Replace(good, `"t"`, "\"t\xff\"", 1),
		"too large": strings.Replace(good, `"tools":`,
			`"tools": `+strings.Repeat(" ", 5<<20), 1),
		"too deep": strings.Replace(good, `"prompts":[`,
			`"prompts":[`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			withHarness(t, o, func(t *testing.T, h *harness) {
				if warnings := h.log.Warnings(); len(warnings) != 1 ||
					!strings.Contains(warnings[0], "it is ignored and will be replaced") {
					t.Errorf("logged %q", warnings)
				}
				h.wantNames()
				h.nextProcess("a").ServeStartup("t")
				h.wantNames("t")
			})
			if now, _ := os.ReadFile(path); string(now) != good {
				t.Errorf("kept %s, want it rewritten", now)
			}
		})
	}
}

// If the path of the cache leads to anything but a cache file, there is no cache and at most one
// warning. The gateway does not block on the path.
func TestCache_OtherThanFileIsIgnored(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.wantNames("t")
	})
	path := cacheFile(t, o.StateDir)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, put := range map[string]func() error{
		"a directory": func() error {
			return os.MkdirAll(filepath.Join(path, "full"), 0o700)
		},
		"a link to itself":   func() error { return os.Symlink(filepath.Base(path), path) },
		"a link to nothing":  func() error { return os.Symlink("nothing", path) },
		"a link to a device": func() error { return os.Symlink("/dev/zero", path) },
		"a link to a file": func() error {
			return errors.Join(os.WriteFile(elsewhere, []byte("secret"), 0o600),
				os.Symlink(elsewhere, path))
		},
		"a pipe": func() error { return mkfifo(path) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(path), put()); err != nil {
				t.Fatal(err)
			}
			withHarness(t, o, func(t *testing.T, h *harness) {
				h.wantNames()
				h.nextProcess("a").ServeStartup("t")
				h.wantNames("t")
				if warnings := h.log.Warnings(); len(warnings) > 1 {
					t.Errorf("logged %q", warnings)
				}
			})
			if now, err := os.ReadFile(path); name != "a directory" &&
				string(now) != string(whole) {
				t.Errorf("kept %q, %v", now, err)
			}
			if text, err := os.ReadFile(elsewhere); err == nil && string(text) != "secret" {
				t.Errorf("the target of the link is %q now", text)
			}
			if half, _ := filepath.Glob(o.StateDir + "/*.tmp"); len(half) > 0 {
				t.Errorf("left behind: %q", half)
			}
		})
	}
}

// A file that others could read becomes accessible to its owner only, even if its content does not
// change.
func TestCache_OwnerOnlyAccess(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // Windows has no such modes
	}
	o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
	for _, tool := range []string{"t", "t", "u"} {
		withHarness(t, o, func(t *testing.T, h *harness) {
			h.nextProcess("a").ServeStartup(tool)
			h.wantNames(tool)
		})
		path := cacheFile(t, o.StateDir)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// Several gateways share a state directory: each read finds a complete list.
func TestCONC11_ConcurrentCacheWriters(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 10 {
				o := backends.Options{Backends: legacyBackends("a"), StateDir: dir}
				withHarness(t, o, func(t *testing.T, h *harness) {
					if warnings := h.log.Warnings(); len(warnings) != 0 {
						t.Errorf("logged %q", warnings)
					}
					h.nextProcess("a").ServeStartup(fmt.Sprintf("t%d_%d", i, j))
					h.wantNames(fmt.Sprintf("t%d_%d", i, j))
				})
			}
		})
	}
	all.Wait()
	cacheFile(t, dir) // no temporary file is left
}

// If the directory cannot be written to, only the cache is missing.
func TestCache_WriteFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	withHarness(t, backends.Options{Backends: legacyBackends("a"),
		StateDir: filepath.Join(file, "state")}, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.wantNames("t")
		if warnings := h.log.Warnings(); len(warnings) != 1 ||
			!strings.Contains(warnings[0], "cannot write catalog cache") {
			t.Errorf("logged %q", warnings)
		}
	})
}

// The catalog of a server that declares its capabilities in an unusual way is cached like any
// other, and each start finds the last state.
func TestCache_UnusualCapabilities(t *testing.T) {
	for _, odd := range []string{`,"capabilities":null`, `,"capabilities":[]`,
		`,"capabilities":"all"`, ``} {
		o := backends.Options{Backends: legacyBackends("a"), StateDir: t.TempDir()}
		for start := range 2 {
			withHarness(t, o, func(t *testing.T, h *harness) {
				if start > 0 {
					h.wantNames("t")
				}
				a := h.nextProcess("a")
				a.ServeHandshake(`{"protocolVersion":"2025-11-25"` + odd + `}`)
				a.ServeToolsList(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
				h.wantNames("t")
				if warnings := h.log.Warnings(); len(warnings) != 0 {
					t.Errorf("%s: logged %q", odd, warnings)
				}
			})
		}
	}
}

// The first list is complete if all catalogs are cached, and a later difference makes a new View.
func TestCache_CatalogIsSettled(t *testing.T) {
	o := backends.Options{Backends: legacyBackends("a", "b"), StateDir: t.TempDir()}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").ServeStartup("t")
		h.nextProcess("b").ServeStartup("t")
		h.wantNames("t", "b__t")
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, o)
		h.Start()
		v := h.View() // the first view is complete without any wait
		if !v.Settled || !v.Complete || len(v.Entries(catalog.Tools)) != 2 {
			t.Errorf("settled %v, complete %v, %d tools", v.Settled, v.Complete,
				len(v.Entries(catalog.Tools)))
		}
		b := h.nextProcess("b") // started first, but later in the configuration
		b.ServeStartup("t")
		synctest.Wait()
		if h.View() != v {
			t.Error("a list that has not changed made a new View")
		}
		a := h.nextProcess("a")
		a.ServeStartup("t", "more")
		select {
		case <-v.Changed:
		case <-time.After(time.Second):
			t.Error("the change made no new View")
		}
		h.wantNames("t", "more", "b__t")
	})
}

// With IgnoreCache the gateway uses only the generation from the cache; it writes both the
// generation and the lists.
func TestCache_IgnoreCacheStillWrites(t *testing.T) {
	o := backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
		StateDir: t.TempDir(), IgnoreCache: true}
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.nextProcess("a").WantRequest("server/discover")
		synctest.Wait()
		time.Sleep(5 * time.Second)
	})
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		// The server is probed again, because the first process has not responded to initialize.
		p.WantRequest("server/discover")
		p.ServeStartup("one", "two")
		h.wantNames("one", "two")
	})
	withHarness(t, o, func(t *testing.T, h *harness) {
		p := h.nextProcess("a")
		h.wantNames()
		if h.View().Complete || h.status("a").Counts[catalog.Tools] != 0 {
			t.Errorf("the cached list counts: %+v", h.status("a"))
		}
		p.ServeStartup("one") // without server/discover
		h.wantNames("one")
	})
	o.IgnoreCache = false
	withHarness(t, o, func(t *testing.T, h *harness) {
		h.wantNames("one")
		h.nextProcess("a").ServeStartup("one")
	})
}

// A backend ends before it has responded to a request for a list. The file marks the backend as
// unprobeable, contains no lists that were not read, and can be read at the next start.
func TestCache_BackendEndsBeforeListing_F_STATE_1(t *testing.T) {
	for name, end := range map[string]func(*mcptest.Peer){
		"no list response": func(p *mcptest.Peer) { p.WantRequest("tools/list") },
		"one list response": func(p *mcptest.Peer) {
			p.ServeToolsList(mcptest.ToolsResult("t"))
			p.WantRequest("prompts/list")
		},
		"a list is refused": func(p *mcptest.Peer) {
			p.SendError(p.WantRequest("tools/list").ID(),
				`{"code":-32603,"message":"fetch failed"}`)
			p.SendResult(p.WantRequest("prompts/list").ID(), `{"prompts":[]}`)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := backends.Options{Backends: withUnknownGeneration(legacyBackends("a")...),
				StateDir: t.TempDir()}
			withHarness(t, o, func(t *testing.T, h *harness) {
				p := h.nextProcess("a")
				p.WantRequest("server/discover")
				p.Exit("exit 1", "")
				p = h.nextProcess("a")
				p.ServeHandshake(
					`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"s","version":"1"}}`)
				end(p)
				p.Exit("exit 2", "")
				synctest.Wait()
			})
			text, err := os.ReadFile(cacheFile(t, o.StateDir))
			if err != nil || !json.Valid(text) {
				t.Errorf("kept %s, %v", text, err)
			}
			withHarness(t, o, func(t *testing.T, h *harness) {
				if h.View().Complete {
					t.Error("the catalog is complete although no list is known")
				}
				p := h.nextProcess("a")
				p.ServeHandshake("") // without server/discover
				p.ServeToolsList(mcptest.ToolsResult("t"))
				h.wantNames("t")
				if warnings := h.log.Warnings(); len(warnings) > 0 {
					t.Errorf("logged %q", warnings)
				}
			})
		})
	}
}
