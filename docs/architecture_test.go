package docs_test

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/gosource"
)

// TestArchitectureDoc checks that the files and identifiers in architecture.md exist.
func TestArchitectureDoc(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, f := range gosource.Files(t) {
		known[path.Base(f.Path)] = true
		known[f.Syntax.Name.Name] = true
		for dir := f.Dir; dir != "."; dir = path.Dir(dir) {
			known[path.Base(dir)] = true
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				known[n.Name.Name] = true
			case *ast.TypeSpec:
				known[n.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range n.Names {
					known[name.Name] = true
				}
			case *ast.Field:
				for _, name := range n.Names {
					known[name.Name] = true
				}
			}
			return true
		})
	}
	// `backends/run.go`, `peer.Call`, `Session.dispatch`, `internal/peer`; not `max_in_flight`,
	// text or Markdown
	code := regexp.MustCompile("`([A-Za-z][A-Za-z0-9./]*)`")
	protocolWords := map[string]bool{"legacy": true, "modern": true, "initialize": true,
		"_meta": true}
	for number, line := range strings.Split(string(text), "\n") {
		for _, match := range code.FindAllStringSubmatch(line, -1) {
			name := match[1]
			if protocolWords[name] || strings.HasSuffix(name, ".yaml") ||
				name == "subscriptions/listen" || name == "tools/list" {
				continue
			}
			last := path.Base(name)
			if !strings.HasSuffix(last, ".go") {
				last = last[strings.LastIndexByte(last, '.')+1:]
			}
			if !known[last] {
				t.Errorf("architecture.md:%d: %s does not exist", number+1, name)
			}
		}
	}
}
