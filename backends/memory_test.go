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

// kept returns the one file in a state directory.
func kept(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files in %s, want one: %v", len(files), dir, err)
	}
	return filepath.Join(dir, files[0].Name())
}

func TestWhatIsKnownIsRemembered(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "mcp-gateway") // made when there is something to keep
	const tools = `{"tools":[{"name":"búsqueda", "x-unknown":1.10,"inputSchema":{"type":"object"},"description":"<\u003c>"},{"name":"hidden","inputSchema":{"type":"object"}}]}`
	o := backends.Options{Backends: plain("a", "b"), StateDir: dir}
	o.Backends[0].Tools = config.Filter{Deny: []string{"hidden"}}
	inHouse(t, o, func(t *testing.T, h *house) {
		if _, err := os.Stat(dir); err == nil {
			t.Error("the directory is made before there is anything to keep")
		}
		a := h.next("a")
		a.ServeHandshake(`{"protocolVersion":"2025-11-25","instructions":"<Search> \"all\""}`)
		a.ServeToolsList(tools)
		h.wantNames("b_squeda")
		path := kept(t, dir)
		if info, err := os.Stat(path); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	})
	text, err := os.ReadFile(kept(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"version":3,"instructions":"<Search> \"all\"","capabilities":{},"tools":` + tools +
		`,"prompts":{"prompts":[]},"resources":{"resources":[]},"resourceTemplates":{"resourceTemplates":[]}}` + "\n"; string(text) != want {
		t.Errorf("kept %s\nwant %s", text, want)
	}

	o.Backends[0].Tools = config.Filter{} // what is allowed is decided anew
	inHouse(t, o, func(t *testing.T, h *house) {
		h.wantNames("b_squeda", "hidden")
		v := h.View()
		page, _ := v.Page(catalog.Tools, nil)
		list := string(page)
		if v.Complete || v.Instructions != "## a\n\n<Search> \"all\"" || !strings.Contains(list, `"x-unknown":1.10`) {
			t.Errorf("complete: %v, instructions %q, list %s", v.Complete, v.Instructions, list)
		}
		if s := h.status("a"); s.Counts[catalog.Tools] != 2 || s.Settled {
			t.Errorf("status: %+v", s)
		}
		h.next("b").ServeStartup()
		synctest.Wait()
		if !h.View().Complete {
			t.Error("all that is known or has answered is not complete")
		}
		// It has fewer now, and says so.
		h.next("a").ServeStartup("only")
		h.wantNames("only")
	})
	if text, _ := os.ReadFile(keptFor(t, dir, "a-")); !strings.Contains(string(text), `"only"`) {
		t.Errorf("kept %s", text)
	}
}

// keptFor returns the file whose name begins with prefix.
func keptFor(t *testing.T, dir, prefix string) string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if len(files) != 1 {
		t.Fatalf("files: %q", files)
	}
	return files[0]
}

// The list that has not changed is not written again.
func TestTheSameListIsNotWrittenAgain(t *testing.T) {
	o := backends.Options{Backends: plain("a"), StateDir: t.TempDir()}
	for round := range 2 {
		inHouse(t, o, func(t *testing.T, h *house) {
			if round > 0 {
				h.wantNames("t")
				if err := os.Remove(kept(t, o.StateDir)); err != nil {
					t.Fatal(err)
				}
			}
			h.next("a").ServeStartup("t")
			h.wantNames("t")
		})
	}
	if files, _ := os.ReadDir(o.StateDir); len(files) != 0 {
		t.Error("it was written though it had not changed")
	}
}

// Another program under the same name is another backend.
func TestAMemoryBelongsToWhatWasRun(t *testing.T) {
	dir := t.TempDir()
	inHouse(t, backends.Options{Backends: plain("a"), StateDir: dir}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.wantNames("t")
	})
	for _, change := range []func(*config.Backend){
		func(b *config.Backend) { b.Command = "other" },
		func(b *config.Backend) { b.Args = []string{"x"} },
		func(b *config.Backend) { b.Cwd = "/" },
		func(b *config.Backend) { b.Command, b.URL = "", "http://127.0.0.1:1/mcp" },
		func(b *config.Backend) { b.Name = "b" },
	} {
		o := backends.Options{Backends: plain("a"), StateDir: dir}
		change(&o.Backends[0])
		inHouse(t, o, func(t *testing.T, h *house) { h.wantNames() })
	}
	inHouse(t, backends.Options{Backends: plain("a"), StateDir: dir}, func(t *testing.T, h *house) { h.wantNames("t") })
}

// A file of the version before, which knows nothing of eras, is as good as any.
func TestTheMemoryOfAnOlderGateway(t *testing.T) {
	o := backends.Options{Backends: plain("a"), StateDir: t.TempDir()}
	inHouse(t, o, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.wantNames("t")
	})
	path := kept(t, o.StateDir)
	text, _ := os.ReadFile(path)
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"version":3`, `"version":2`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	inHouse(t, o, func(t *testing.T, h *house) {
		h.wantNames("t")
		if loud := h.log.Warnings(); len(loud) > 0 {
			t.Errorf("logged %q", loud)
		}
	})
}

func TestADamagedMemoryIsNoMemory(t *testing.T) {
	o := backends.Options{Backends: plain("a"), StateDir: t.TempDir()}
	inHouse(t, o, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.wantNames("t")
	})
	path := kept(t, o.StateDir)
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
		"no capabilities":   strings.Replace(good, `"capabilities":{`, `"capabilities":[],"x":{`, 1),
		"no tools":          strings.Replace(good, `"tools":[`, `"tools":{},"x":[`, 1),
		"UTF-8":             strings.Replace(good, `"t"`, "\"t\xff\"", 1),
		"too large":         strings.Replace(good, `"tools":`, `"tools": `+strings.Repeat(" ", 5<<20), 1),
		"too deep":          strings.Replace(good, `"prompts":[`, `"prompts":[`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			inHouse(t, o, func(t *testing.T, h *house) {
				if loud := h.log.Warnings(); len(loud) != 1 || !strings.Contains(loud[0], "damaged") {
					t.Errorf("logged %q", loud)
				}
				h.wantNames()
				h.next("a").ServeStartup("t")
				h.wantNames("t")
			})
			if now, _ := os.ReadFile(path); string(now) != good {
				t.Errorf("kept %s, want it written anew", now)
			}
		})
	}
}

// What stands in the file's place and is no file costs the memory, and at most a word in the log; nobody waits for it.
func TestWhatIsNoFileIsNoMemory(t *testing.T) {
	o := backends.Options{Backends: plain("a"), StateDir: t.TempDir()}
	inHouse(t, o, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.wantNames("t")
	})
	path := kept(t, o.StateDir)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, put := range map[string]func() error{
		"a directory":        func() error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) },
		"a link to itself":   func() error { return os.Symlink(filepath.Base(path), path) },
		"a link to nothing":  func() error { return os.Symlink("nothing", path) },
		"a link to a device": func() error { return os.Symlink("/dev/zero", path) },
		"a link to a file": func() error {
			return errors.Join(os.WriteFile(elsewhere, []byte("secret"), 0o600), os.Symlink(elsewhere, path))
		},
		"a pipe": func() error { return mkfifo(path) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(path), put()); err != nil {
				t.Fatal(err)
			}
			inHouse(t, o, func(t *testing.T, h *house) {
				h.wantNames()
				h.next("a").ServeStartup("t")
				h.wantNames("t")
				if loud := h.log.Warnings(); len(loud) > 1 {
					t.Errorf("logged %q", loud)
				}
			})
			if now, err := os.ReadFile(path); name != "a directory" && string(now) != string(whole) {
				t.Errorf("kept %q, %v", now, err)
			}
			if text, err := os.ReadFile(elsewhere); err == nil && string(text) != "secret" {
				t.Errorf("what the link led to is %q now", text)
			}
			if half, _ := filepath.Glob(o.StateDir + "/*.tmp"); len(half) > 0 {
				t.Errorf("left behind: %q", half)
			}
		})
	}
}

// A file that others could read is its owner's alone from then on, whether it changes or not.
func TestAMemoryIsItsOwners(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // there are no such modes
	}
	o := backends.Options{Backends: plain("a"), StateDir: t.TempDir()}
	for _, tool := range []string{"t", "t", "u"} {
		inHouse(t, o, func(t *testing.T, h *house) {
			h.next("a").ServeStartup(tool)
			h.wantNames(tool)
		})
		path := kept(t, o.StateDir)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// Two gateways share a state directory: whoever reads finds one whole list.
func TestCONC11_ManyWritersOneMemory(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 10 {
				o := backends.Options{Backends: plain("a"), StateDir: dir}
				inHouse(t, o, func(t *testing.T, h *house) {
					if loud := h.log.Warnings(); len(loud) != 0 {
						t.Errorf("logged %q", loud)
					}
					h.next("a").ServeStartup(fmt.Sprintf("t%d_%d", i, j))
					h.wantNames(fmt.Sprintf("t%d_%d", i, j))
				})
			}
		})
	}
	all.Wait()
	kept(t, dir) // nothing half written beside it
}

// A directory that cannot be written to costs the memory and nothing else.
func TestAMemoryThatCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inHouse(t, backends.Options{Backends: plain("a"), StateDir: filepath.Join(file, "state")}, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.wantNames("t")
		if loud := h.log.Warnings(); len(loud) != 1 || !strings.Contains(loud[0], "cannot write catalog cache") {
			t.Errorf("logged %q", loud)
		}
	})
}

// A server that declares its capabilities in a way of its own is remembered like any other, and each start finds what
// the last has written.
func TestOddCapabilitiesAreRemembered(t *testing.T) {
	for _, odd := range []string{`,"capabilities":null`, `,"capabilities":[]`, `,"capabilities":"all"`, ``} {
		o := backends.Options{Backends: plain("a"), StateDir: t.TempDir()}
		for start := range 2 {
			inHouse(t, o, func(t *testing.T, h *house) {
				if start > 0 {
					h.wantNames("t")
				}
				a := h.next("a")
				a.ServeHandshake(`{"protocolVersion":"2025-11-25"` + odd + `}`)
				a.ServeToolsList(`{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
				h.wantNames("t")
				if loud := h.log.Warnings(); len(loud) != 0 {
					t.Errorf("%s: logged %q", odd, loud)
				}
			})
		}
	}
}

// The first list is there at once if all is known, and what is late is news.
func TestARecalledCatalogIsSettled(t *testing.T) {
	o := backends.Options{Backends: plain("a", "b"), StateDir: t.TempDir()}
	inHouse(t, o, func(t *testing.T, h *house) {
		h.next("a").ServeStartup("t")
		h.next("b").ServeStartup("t")
		h.wantNames("t", "b__t")
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, o)
		h.Start()
		v := h.View() // with no wait at all
		if !v.Settled || !v.Complete || len(v.Entries(catalog.Tools)) != 2 {
			t.Errorf("settled %v, complete %v, %d tools", v.Settled, v.Complete, len(v.Entries(catalog.Tools)))
		}
		b := h.next("b") // started first, and yet not first in line
		b.ServeStartup("t")
		synctest.Wait()
		if h.View() != v {
			t.Error("a list that has not changed made a new View")
		}
		a := h.next("a")
		a.ServeStartup("t", "more")
		select {
		case <-v.Changed:
		case <-time.After(time.Second):
			t.Error("no word of the change")
		}
		h.wantNames("t", "more", "b__t")
	})
}

// Anew: of what is remembered only how the backend is to be spoken to counts, and both
// are remembered.
func TestWhatIsListedAnewIsRememberedAllTheSame(t *testing.T) {
	o := backends.Options{Backends: unasked(plain("a")...), StateDir: t.TempDir(), IgnoreCache: true}
	inHouse(t, o, func(t *testing.T, h *house) {
		h.next("a").HandleRequest("server/discover")
		synctest.Wait()
		time.Sleep(5 * time.Second)
	})
	inHouse(t, o, func(t *testing.T, h *house) {
		p := h.next("a")
		p.HandleRequest("server/discover") // it has not answered initialize
		p.ServeStartup("one", "two")
		h.wantNames("one", "two")
	})
	inHouse(t, o, func(t *testing.T, h *house) {
		p := h.next("a")
		h.wantNames()
		if h.View().Complete || h.status("a").Counts[catalog.Tools] != 0 {
			t.Errorf("what was listed earlier counts: %+v", h.status("a"))
		}
		p.ServeStartup("one") // and is not asked what it is
		h.wantNames("one")
	})
	o.IgnoreCache = false
	inHouse(t, o, func(t *testing.T, h *house) {
		h.wantNames("one")
		h.next("a").ServeStartup("one")
	})
}

// A backend ends before it has answered a request for a list: the file keeps that it must not be asked
// for its protocol generation, has nothing of lists that were not read, and can be read at the next start.
func TestABackendEndsBeforeItIsListed_F_STATE_1(t *testing.T) {
	for name, end := range map[string]func(*mcptest.Peer){
		"no list is answered": func(p *mcptest.Peer) { p.HandleRequest("tools/list") },
		"one list is answered": func(p *mcptest.Peer) {
			p.ServeToolsList(mcptest.ToolsResult("t"))
			p.HandleRequest("prompts/list")
		},
		"a list is refused": func(p *mcptest.Peer) {
			p.SendError(p.HandleRequest("tools/list").ID(), `{"code":-32603,"message":"fetch failed"}`)
			p.SendResult(p.HandleRequest("prompts/list").ID(), `{"prompts":[]}`)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := backends.Options{Backends: unasked(plain("a")...), StateDir: t.TempDir()}
			inHouse(t, o, func(t *testing.T, h *house) {
				p := h.next("a")
				p.HandleRequest("server/discover")
				p.Exit("exit 1", "")
				p = h.next("a")
				p.ServeHandshake(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"s","version":"1"}}`)
				end(p)
				p.Exit("exit 2", "")
				synctest.Wait()
			})
			text, err := os.ReadFile(kept(t, o.StateDir))
			if err != nil || !json.Valid(text) {
				t.Errorf("kept %s, %v", text, err)
			}
			inHouse(t, o, func(t *testing.T, h *house) {
				if h.View().Complete {
					t.Error("the catalog is complete though no list is known")
				}
				p := h.next("a")
				p.ServeHandshake("") // without server/discover
				p.ServeToolsList(mcptest.ToolsResult("t"))
				h.wantNames("t")
				if loud := h.log.Warnings(); len(loud) > 0 {
					t.Errorf("logged %q", loud)
				}
			})
		})
	}
}
