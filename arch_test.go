// Package arch_test checks the rules of this module that the compiler does not know: which package
// may import what, what the top level contains, and how code is written.
package arch_test

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/gosource"
)

// topLevel is what the root of the repository may contain.
var topLevel = []string{
	".ci", ".git", ".gitattributes", ".github", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md",
	"LICENSE",
	"Makefile", "README.md", "arch_test.go", "backends", "bin", "catalog", "cmd",
	"config.example.yaml",
	"deploy", "docs", "gateway", "go.mod", "go.sum", "idmap", "integration", "internal",
}

// allowedImports lists for each package of the product the packages of this module that it may
// import. Every package of the product has an entry. docs/decisions/001 gives the reasons.
var allowedImports = map[string][]string{
	// messages
	"internal/wire":     {},
	"internal/protocol": {"internal/wire"},
	"catalog":           {"internal/lazy", "internal/protocol", "internal/wire"},
	// connections
	"internal/procgroup":       {},
	"internal/transport":       {"internal/wire"},
	"internal/sse":             {"internal/transport", "internal/wire"},
	"internal/transport/child": {"internal/procgroup", "internal/transport", "internal/wire"},
	"internal/transport/httpclient": {
		"internal/protocol", "internal/sse", "internal/transport", "internal/wire",
	},
	"internal/httpserver": {"internal/protocol", "internal/quota", "internal/transport",
		"internal/wire"},
	"idmap":         {},
	"internal/peer": {"idmap", "internal/protocol", "internal/transport", "internal/wire"},
	// the engine: gateway and backends do not import each other
	"gateway": {
		"catalog", "internal/audit", "internal/peer", "internal/protocol", "internal/quota",
		"internal/transport",
		"internal/transport/child", "internal/wire",
	},
	"backends": {
		"catalog", "internal/atomicfile", "internal/config", "internal/demo", "internal/lazy",
		"internal/peer", "internal/protocol", "internal/quota",
		"internal/transport", "internal/transport/child", "internal/transport/httpclient",
		"internal/wire",
	},
	"internal/demo": {"internal/peer", "internal/protocol", "internal/transport", "internal/wire"},
	// configuration, records and logs
	"internal/config": {
		"internal/config/internal/dialect", "internal/config/internal/expand",
		"internal/config/internal/node", "internal/lazy", "internal/secrets",
	},
	"internal/config/clientimport": {
		"internal/config", "internal/config/internal/dialect", "internal/config/internal/expand",
		"internal/config/internal/node", "internal/lazy", "internal/secrets",
	},
	"internal/config/internal/dialect": {
		"internal/config/internal/expand", "internal/config/internal/node", "internal/lazy",
	},
	"internal/config/internal/expand": {"internal/config/internal/node"},
	"internal/config/internal/node":   {"internal/lazy"},
	"internal/audit":                  {"internal/secrets"},
	"internal/logging":                {"internal/secrets"},
	"internal/secrets":                {"internal/lazy"},
	"internal/lazy":                   {},
	"internal/quota":                  {},
	// the program
	"internal/reload":     {"internal/atomicfile", "internal/config"},
	"internal/gctune":     {},
	"internal/atomicfile": {},
	"cmd/gateway": {
		"backends", "catalog", "gateway", "internal/atomicfile", "internal/audit",
		"internal/config",
		"internal/config/clientimport", "internal/gctune", "internal/httpserver",
		"internal/logging",
		"internal/peer", "internal/procgroup", "internal/protocol", "internal/reload",
		"internal/transport", "internal/wire",
	},
}

// allowedTools is allowedImports for programs and packages that are not part of the product.
var allowedTools = map[string][]string{
	"integration":                {},
	"integration/bench":          {"catalog"},
	"integration/bench/scanners": {"internal/wire"},
	"integration/chaos": {
		"internal/atomicfile", "internal/mcptest/faults", "internal/sse", "internal/wire",
	},
	"integration/windows": {},
	"internal/mcptest": {"internal/transport", "internal/transport/child",
		"internal/wire"},
	"internal/mcptest/faults":      {"internal/wire"},
	"internal/mcptest/faults/stub": {"internal/mcptest/faults"},
	"internal/mcptest/gosource":    {},
	"internal/mcptest/proctest":    {},
}

// allowedModules lists the third-party modules and the packages that may import them outside of
// tests. An empty list: for tests only.
var allowedModules = map[string][]string{
	"github.com/fsnotify/fsnotify":          {"internal/reload"},
	"github.com/go-viper/mapstructure":      {"internal/config"},
	"github.com/google/go-cmp":              {},
	"github.com/google/jsonschema-go":       {},
	"github.com/hashicorp/go-retryablehttp": {"internal/transport/httpclient"},
	"github.com/knadh/koanf":                {"internal/config"},
	"github.com/mark3labs/mcp-go/mcp": {"backends", "cmd/gateway", "gateway",
		"internal/demo", "internal/protocol"},
	"github.com/mark3labs/mcp-go":            {},
	"github.com/modelcontextprotocol/go-sdk": {},
	"github.com/pelletier/go-toml":           {"internal/config/clientimport"},
	"github.com/rogpeppe/go-internal":        {},
	"github.com/spf13/cobra":                 {"cmd/gateway"},
	"github.com/yosida95/uritemplate":        {"catalog"},
	"go.yaml.in/yaml": {
		"internal/config", "internal/config/clientimport", "internal/config/internal/dialect",
		"internal/config/internal/node",
	},
	"golang.org/x/sync": {"backends"},
	"golang.org/x/sys": {"cmd/gateway", "integration/bench", "internal/procgroup",
		"internal/transport"},
	"golang.org/x/term":  {"cmd/gateway", "internal/reload"},
	"golang.org/x/time":  {"backends"},
	"golang.org/x/tools": {"internal/mcptest"},
}

// allowedTestModules lists the packages whose tests may import a module that is the other side of a
// conversation, or large. Tests of other packages use it through these, or not at all.
var allowedTestModules = map[string][]string{
	"github.com/modelcontextprotocol/go-sdk": {
		"backends", "gateway", "integration", "internal/httpserver", "internal/mcptest",
		"internal/protocol",
		"internal/transport/httpclient",
	},
	"github.com/mark3labs/mcp-go/client": {"integration", "internal/httpserver"},
	"github.com/mark3labs/mcp-go/server": {"integration", "internal/transport/httpclient"},
	"github.com/google/jsonschema-go":    {"internal/protocol"},
}

// allowedStd lists packages of the standard library that only some packages of the product need. A
// package that is not in a list must not open connections, start processes or decode by reflection.
var allowedStd = map[string][]string{
	"encoding/gob": {},
	"encoding/json": {
		"backends", "catalog", "cmd/gateway", "gateway", "internal/audit", "internal/config",
		"internal/config/internal/node",
		"internal/demo", "internal/logging", "internal/reload", "internal/secrets", "internal/wire",
	},
	"crypto/tls": {
		"cmd/gateway", "internal/httpserver", "internal/reload", "internal/transport/httpclient",
	},
	"flag": {},
	"log":  {"internal/config", "internal/logging"},
	"net": {
		"cmd/gateway", "internal/config", "internal/config/internal/dialect", "internal/httpserver",
		"internal/secrets", "internal/transport/httpclient",
	},
	"net/http": {"backends", "cmd/gateway", "internal/httpserver",
		"internal/transport/httpclient"},
	"os/exec": {"internal/config/internal/dialect", "internal/procgroup",
		"internal/transport/child"},
	"os/signal": {"cmd/gateway", "internal/procgroup"},
	"plugin":    {},
	"reflect":   {"backends", "internal/config"},
	"regexp": {"catalog", "internal/config", "internal/config/clientimport",
		"internal/lazy"},
	"runtime/pprof": {"cmd/gateway"},
	"syscall": {
		"cmd/gateway", "internal/config", "internal/httpserver", "internal/logging",
		"internal/procgroup",
		"internal/reload", "internal/transport", "internal/transport/child",
		"internal/transport/httpclient",
	},
	"testing": {},
	"unsafe":  {"internal/procgroup", "internal/transport"},
}

// testImports are the packages of this module that each test may import, in addition to what its
// own package may.
var testImports = []string{
	"internal/mcptest", "internal/mcptest/faults", "internal/mcptest/gosource",
	"internal/mcptest/proctest",
}

// extraTestImports are further packages that the tests of a package may import.
var extraTestImports = map[string][]string{
	"docs":                {"internal/config"},
	"gateway":             {"backends", "internal/config"},
	"internal/audit":      {"internal/logging"},
	"internal/httpserver": {"internal/peer"},
	"internal/peer":       {"internal/transport/child"},
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(topLevel, e.Name()) {
			t.Errorf("%s does not belong at the top level: see topLevel", e.Name())
		}
	}
}

func TestImports(t *testing.T) {
	used := make(map[[2]string]bool)
	for _, f := range gosource.Files(t) {
		allowed, isProduct := allowedImports[f.Dir]
		if !isProduct {
			var known bool
			if allowed, known = allowedTools[f.Dir]; !known && !f.IsTest() {
				t.Errorf("%s: package %s has no entry in allowedImports", f.Path, f.Dir)
				continue
			}
		}
		for _, spec := range f.Syntax.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			where := f.Position(spec.Pos())
			if ours, ok := strings.CutPrefix(target, "mcpgateway/"); ok {
				if !f.IsTest() {
					used[[2]string{f.Dir, ours}] = true
				}
				if !slices.Contains(allowed, ours) && !(f.IsTest() && testMayImport(f.Dir, ours)) {
					t.Errorf("%s: package %s must not import %s", where, f.Dir, ours)
				}
				continue
			}
			first, _, _ := strings.Cut(target, "/")
			switch isModule := strings.Contains(first, "."); {
			case isModule && f.IsTest():
				checkModule(t, where, target, f.Dir, allowedTestModules, true)
			case isModule:
				checkModule(t, where, target, f.Dir, allowedModules, !isProduct)
			case isProduct && !f.IsTest():
				if dirs, limited := allowedStd[target]; limited && !slices.Contains(dirs, f.Dir) {
					t.Errorf("%s: package %s must not import %s", where, f.Dir, target)
				}
			}
		}
	}
	for dir, targets := range allowedImports {
		for _, target := range targets {
			if !used[[2]string{dir, target}] {
				t.Errorf("allowedImports has %s for %s, which does not import it", target, dir)
			}
		}
	}
}

func testMayImport(dir, target string) bool {
	return target == dir || strings.HasPrefix(dir, "integration") ||
		slices.Contains(testImports, target) ||
		slices.Contains(extraTestImports[dir], target)
}

// checkModule reports an import of a module by a package that has no leave for it. The longest
// prefix of the import path in the table decides.
func checkModule(t *testing.T, where, target, dir string, table map[string][]string, others bool) {
	t.Helper()
	module := ""
	for m := range table {
		if strings.HasPrefix(target, m) && len(m) > len(module) {
			module = m
		}
	}
	if module == "" && others {
		return
	}
	if module == "" || !slices.Contains(table[module], dir) &&
		!(others && len(table[module]) == 0) {
		t.Errorf("%s: package %s must not import %s", where, dir, target)
	}
}

// Stdout carries the protocol: any other writer breaks the client.
func TestOnlyTheProgramWritesToStdout(t *testing.T) {
	for _, f := range gosource.Files(t) {
		if _, isProduct := allowedImports[f.Dir]; !isProduct || f.Dir == "cmd/gateway" ||
			f.IsTest() {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				pkg, _ := n.X.(*ast.Ident)
				if pkg == nil {
					return true
				}
				if pkg.Name == "fmt" && strings.HasPrefix(n.Sel.Name, "Print") ||
					pkg.Name == "os" && n.Sel.Name == "Stdout" {
					t.Errorf("%s uses %s.%s", f.Position(n.Pos()), pkg.Name, n.Sel.Name)
				}
			case *ast.CallExpr:
				if called, ok := n.Fun.(*ast.Ident); ok && called.Obj == nil &&
					(called.Name == "println" || called.Name == "print") {
					t.Errorf("%s calls %s", f.Position(n.Pos()), called.Name)
				}
			}
			return true
		})
	}
}

// A client waits until the gateway has started. Expressions that few runs need are compiled on
// first use: see internal/lazy.
func TestNoRegularExpressionIsCompiledAtStart(t *testing.T) {
	for _, f := range gosource.Files(t) {
		if _, isProduct := allowedImports[f.Dir]; !isProduct || f.IsTest() {
			continue
		}
		for _, d := range f.Syntax.Decls {
			if vars, ok := d.(*ast.GenDecl); ok && vars.Tok == token.VAR {
				ast.Inspect(vars, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.FuncLit:
						return false
					case *ast.SelectorExpr:
						if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "regexp" &&
							n.Sel.Name == "MustCompile" {
							t.Errorf("%s compiles a regular expression at start",
								f.Position(n.Pos()))
						}
					}
					return true
				})
			}
		}
	}
}

func TestEveryPackageHasAComment(t *testing.T) {
	documented := make(map[string]bool)
	for _, f := range gosource.Files(t) {
		if !f.IsTest() {
			documented[f.Dir] = documented[f.Dir] || f.Syntax.Doc != nil
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// protocolName matches string literals that are names of MCP: methods, headers, members of _meta.
// The method ping is not in it, because other things have that name, too.
var protocolName = regexp.MustCompile(`(?i)^"(initialize|(server|subscriptions)/\w+|` +
	`(tools|prompts|resources|tasks|completion|logging|sampling|elicitation|roots)/[a-z/]+|` +
	`notifications/[a-z_/]+|x-mcp-header|mcp-(session-id|protocol-version|method|name|param-)|` +
	`last-event-id|io\.modelcontextprotocol/.*)"$`)

// Names of MCP are constants of internal/protocol. Package wire, which protocol imports, reads some
// of them; packages config and secrets have lists of header names in lower case.
func TestProtocolNamesAreConstants(t *testing.T) {
	allowed := []string{
		"internal/protocol", "internal/wire", "internal/config", "internal/secrets",
	}
	for _, f := range gosource.Files(t) {
		if _, isProduct := allowedImports[f.Dir]; !isProduct || f.IsTest() ||
			slices.Contains(allowed, f.Dir) {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING &&
				protocolName.MatchString(l.Value) {
				t.Errorf("%s: use the constant of internal/protocol for %s", f.Position(l.Pos()),
					l.Value)
			}
			return true
		})
	}
}

// logKeys are the keys that a log record may have: the list that users were promised, and those
// that docs/decisions/006 adds.
var logKeys = map[string]bool{
	"backend": true, "session": true, "client": true, "method": true, "tool": true, "id": true,
	"revision": true,
	"name":     true, "dur": true, "next": true, "err": true,
	"as": true, "asked": true, "file": true, "max": true, "params": true, "records": true,
	"server": true,
	"text":   true, "version": true, "lost": true, "bytes": true,
	"was": true, "now": true, "owner": true,
	"principal": true, "added": true, "removed": true, "changed": true, "kept": true, "down": true,
}

// logFunctions are the functions and methods that take keys and values, by the index of the first
// key.
var logFunctions = map[string]int{"Debug": 1, "Info": 1, "Warn": 1, "Error": 1, "With": 0,
	"warnOnce": 1, "say": 1}

func TestLogKeys(t *testing.T) {
	for _, f := range gosource.Files(t) {
		if _, isProduct := allowedImports[f.Dir]; !isProduct || f.IsTest() ||
			f.Dir == "internal/audit" {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch called := call.Fun.(type) {
			case *ast.SelectorExpr:
				name = called.Sel.Name
			case *ast.Ident:
				name = called.Name
			}
			first, logs := logFunctions[name]
			if !logs {
				return true
			}
			for i := first; i+1 < len(call.Args); i += 2 {
				if lit, ok := call.Args[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if key, _ := strconv.Unquote(lit.Value); !logKeys[key] {
						t.Errorf("%s: a log record has the key %q", f.Position(lit.Pos()), key)
					}
				}
			}
			return true
		})
	}
}

func TestNoInitFunctions(t *testing.T) {
	for _, f := range gosource.Files(t) {
		for _, d := range f.Syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: init function", f.Position(fn.Pos()))
			}
		}
	}
}

// Tests sleep only in packages whose tests run in synctest bubbles, where time is virtual.
func TestNoSleepInRealTime(t *testing.T) {
	bubbles := make(map[string]bool) // by directory
	sleeps := make(map[string]string)
	for _, f := range gosource.Files(t) {
		if !f.IsTest() {
			continue
		}
		for _, spec := range f.Syntax.Imports {
			if spec.Path.Value == `"testing/synctest"` {
				bubbles[f.Dir] = true
			}
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
					sleeps[f.Position(n.Pos())] = f.Dir
				}
			}
			return true
		})
	}
	for where, dir := range sleeps {
		if !bubbles[dir] {
			t.Errorf("%s sleeps outside of a synctest bubble", where)
		}
	}
}
