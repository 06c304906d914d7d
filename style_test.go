package arch_test

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"mcpgateway/internal/mcptest/gosource"
)

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
// It does not match the method ping, because other things also have that name.
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

// maxColumns bounds the lines of Go code and comments; a tab counts tabColumns.
const (
	maxColumns = 100
	tabColumns = 4
)

// A line is not checked if its string literals have literalColumns or more, because breaking a
// literal would not help a reader.
const literalColumns = 20

func TestLinesAreAtMost100Columns(t *testing.T) {
	for _, f := range gosource.Files(t) {
		literal := literalWidths(f)
		number := 0
		for line := range strings.Lines(string(f.Text)) {
			number++
			line = strings.TrimRight(line, "\r\n")
			width := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
			if width > maxColumns && literal[number] < literalColumns &&
				!strings.HasPrefix(line, "//go:") &&
				!strings.HasPrefix(strings.TrimSpace(line), "// Output:") {
				t.Errorf("%s:%d has %d columns", f.Path, number, width)
			}
		}
	}
}

// literalWidths returns, by line, the bytes of string literals on it.
func literalWidths(f *gosource.File) map[int]int {
	widths := make(map[int]int)
	file := token.NewFileSet().AddFile("", -1, len(f.Text))
	var s scanner.Scanner
	s.Init(file, f.Text, nil, 0)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return widths
		}
		if tok == token.STRING {
			line := file.Line(pos)
			for part := range strings.Lines(text) {
				widths[line] += len(part)
				line++
			}
		}
	}
}
