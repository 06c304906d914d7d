// Package house_test holds the rules of the house that a compiler does not know.
package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// may says which of our packages each may import; what is not in it may be
// imported by nobody. It is the table of docs/decisions/001-rooms.md.
var may = map[string][]string{
	"wire":                         {},
	"idmap":                        {},
	"revision":                     {"wire"},
	"config":                       {"internal/secrets", "internal/lazy"},
	"audit":                        {"internal/secrets"},
	"logs":                         {"internal/secrets"},
	"internal/secrets":             {"internal/lazy"},
	"internal/lazy":                {},
	"catalog":                      {"wire", "internal/lazy"},
	"transport":                    {"wire"},
	"peer":                         {"transport", "idmap", "wire"},
	"door":                         {"transport", "revision", "wire"},
	"backends":                     {"peer", "catalog", "revision", "config", "transport", "wire", "internal/lazy"},
	"gateway":                      {"peer", "catalog", "revision", "audit", "transport", "wire"},
	"cmd/gateway":                  {"*"},
	"bench":                        {"*"},
	"internal/mcptest":             {"*"},
	"internal/mcptest/faults":      {"wire"},
	"internal/mcptest/faults/stub": {"internal/mcptest/faults"},
	"chaos":                        {"*"},
	"integration":                  {"*"},
}

// guests says where alone a library may be used.
var guests = map[string][]string{
	"github.com/knadh/koanf":                 {"config"},
	"github.com/hashicorp/go-retryablehttp":  {"transport"},
	"github.com/spf13/cobra":                 {"cmd/gateway"},
	"github.com/mark3labs/mcp-go":            {"backends", "gateway", "revision", "cmd/gateway"},
	"github.com/modelcontextprotocol/go-sdk": {},
	"github.com/pelletier/go-toml":           {"config"},
	"github.com/fsnotify/fsnotify":           {"cmd/gateway"},
	"github.com/go-viper/mapstructure":       {"config"},
	"github.com/google/go-cmp":               {},
	"github.com/rogpeppe/go-internal":        {},
	"github.com/yosida95/uritemplate":        {"catalog"},
	"golang.org/x/sync":                      {"backends"},
	"golang.org/x/time":                      {"backends"},
}

func TestNobodyImportsUpwards(t *testing.T) {
	eachFile(t, func(room string, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		allowed, known := may[room]
		if !known && room != "." {
			t.Errorf("%s: the room %s is not in the table", path, room)
		}
		for _, spec := range file.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			if ours, ok := strings.CutPrefix(target, "mcpgateway/"); ok && !slices.Contains(allowed, ours) && !slices.Contains(allowed, "*") {
				t.Errorf("%s: %s may not import %s", path, room, ours)
			}
			for guest, rooms := range guests {
				if strings.HasPrefix(target, guest) && !slices.Contains(rooms, room) && allowed != nil && !slices.Contains(allowed, "*") {
					t.Errorf("%s: %s is no guest in %s", path, guest, room)
				}
			}
		}
	})
}

// Stdout is the protocol's: whoever else writes to it breaks a client.
func TestNobodyPrintsOnStdout(t *testing.T) {
	eachFile(t, func(room string, path string, file *ast.File) {
		if room == "cmd/gateway" || room == "bench" || room == "chaos" || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(room, "internal/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				pkg, _ := n.X.(*ast.Ident)
				if pkg == nil {
					return true
				}
				if pkg.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print") || pkg.Name == "os" && n.Sel.Name == "Stdout" {
					t.Errorf("%s uses %s.%s", path, pkg.Name, n.Sel.Name)
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "println" || f.Name == "print") && f.Obj == nil {
					t.Errorf("%s calls %s", path, f.Name)
				}
			}
			return true
		})
	})
}

// A client waits until a gateway has started. What few runs need is made when it is needed: see internal/lazy.
func TestNoRegularExpressionIsCompiledAtTheStart(t *testing.T) {
	eachFile(t, func(room string, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || len(may[room]) > 0 && may[room][0] == "*" && room != "cmd/gateway" {
			return
		}
		for _, d := range file.Decls {
			if of, ok := d.(*ast.GenDecl); ok && of.Tok == token.VAR {
				ast.Inspect(of, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.FuncLit:
						return false
					case *ast.SelectorExpr:
						if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "regexp" && n.Sel.Name == "MustCompile" {
							t.Errorf("%s compiles a regular expression at the start", path)
						}
					}
					return true
				})
			}
		}
	})
}

// Every package opens with what it is for.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	documented := make(map[string]bool)
	eachFile(t, func(room string, path string, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") {
			documented[room] = documented[room] || file.Doc != nil
		}
	})
	for room, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", room)
		}
	}
}

// keys are those that a log record may have: the short list that users were
// promised, and what docs/decisions/006-words.md adds to it.
var keys = map[string]bool{
	"backend": true, "session": true, "client": true, "method": true, "tool": true, "id": true, "revision": true, "name": true,
	"dur": true, "next": true, "err": true,
	"as": true, "asked": true, "file": true, "max": true, "params": true, "records": true, "server": true,
	"text": true, "version": true, "lost": true, "bytes": true,
	"was": true, "now": true, "owner": true,
	"principal": true, "added": true, "removed": true, "changed": true, "kept": true, "down": true,
}

func TestLogKeysAreOfTheShortList(t *testing.T) {
	eachFile(t, func(room string, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || room == "audit" || strings.HasPrefix(room, "internal/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				name = f.Sel.Name
			case *ast.Ident:
				name = f.Name
			}
			first := map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0, "warnOnce": 1, "say": 1}
			from, logs := first[name]
			if !logs {
				return true
			}
			for i := from; i+1 < len(call.Args); i += 2 {
				if lit, ok := call.Args[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if key, _ := strconv.Unquote(lit.Value); !keys[key] {
						t.Errorf("%s: a record has the key %q", path, key)
					}
				}
			}
			return true
		})
	})
}

func TestNoInitFunctions(t *testing.T) {
	eachFile(t, func(_ string, path string, file *ast.File) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init function", path)
			}
		}
	})
}

// Tests sleep in synctest bubbles only, where time is virtual.
func TestNoRealSleepInTests(t *testing.T) {
	bubbles := make(map[string]bool) // rooms whose tests run in them
	sleepers := make(map[string]string)
	eachFile(t, func(room string, path string, file *ast.File) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		if slices.ContainsFunc(file.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == `"testing/synctest"` }) {
			bubbles[room] = true
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
					sleepers[path] = room
				}
			}
			return true
		})
	})
	for path, room := range sleepers {
		if !bubbles[room] {
			t.Errorf("%s sleeps, outside of a synctest bubble", path)
		}
	}
}

func eachFile(t *testing.T, visit func(room, path string, file *ast.File)) {
	t.Helper()
	files, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		visit(filepath.ToSlash(filepath.Dir(f.path)), f.path, f.parsed)
	}
}

type sourceFile struct {
	path   string
	parsed *ast.File
}

// parseAll parses all files in Go, once.
var parseAll = sync.OnceValues(func() (files []sourceFile, err error) {
	set := token.NewFileSet()
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == ".git"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		files = append(files, sourceFile{path, file})
		return err
	})
	return files, err
})
