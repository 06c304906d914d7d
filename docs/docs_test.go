// Package docs_test checks documents against the code.
package docs_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/gosource"
)

// TestReliabilityDoc checks that the tests which reliability.md names exist.
func TestReliabilityDoc(t *testing.T) {
	text, err := os.ReadFile("reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool)
	for _, f := range gosource.Files(t) {
		for _, d := range f.Syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.IsTest() {
				tests[fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`).FindAllString(string(text), -1)
	if len(named) == 0 {
		t.Error("docs/reliability.md names no test")
	}
	for _, name := range named {
		if !tests[name] {
			t.Errorf("docs/reliability.md names %s, which does not exist", name)
		}
	}
}

// TestLimitsDoc checks limits.md: each row names a test that exists, and the constants in it are exactly
// the constants of the code that bound something (maxThis, maxThat).
func TestLimitsDoc(t *testing.T) {
	text, err := os.ReadFile("limits.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	tests, bounds := make(map[string]bool), make(map[string]bool)
	for _, f := range gosource.Files(t) {
		for _, d := range f.Syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.IsTest() {
				tests[fn.Name.Name] = true
			}
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST && isProduct(f.Dir) && !f.IsTest() {
				for _, name := range maxima(g) {
					bounds[f.Syntax.Name.Name+"."+name] = true
				}
			}
		}
	}
	for name := range bounds {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("%s is a bound that docs/limits.md lacks", name)
		}
	}
	for _, named := range regexp.MustCompile("`([a-z]+\\.max[A-Z]\\w*)`").FindAllStringSubmatch(doc, -1) {
		if !bounds[named[1]] {
			t.Errorf("docs/limits.md names %s, which does not exist", named[1])
		}
	}
	test := regexp.MustCompile(`\b(Test|Fuzz)\w+`)
	for line := range strings.Lines(doc) {
		named := test.FindAllString(line, -1)
		for _, name := range named {
			if !tests[name] {
				t.Errorf("docs/limits.md names %s, which does not exist", name)
			}
		}
		if cells := strings.Count(line, "|"); strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| what ") && (len(named) == 0 || cells != 5) {
			t.Errorf("docs/limits.md: no test, or not four columns: %s", line)
		}
	}
}

// isProduct reports whether the packages in dir are part of the gateway.
func isProduct(dir string) bool {
	return !strings.HasPrefix(dir, "integration") && !strings.HasPrefix(dir, "internal/mcptest")
}

// maxima returns the constants of a declaration that are called max…
func maxima(g *ast.GenDecl) (names []string) {
	for _, spec := range g.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			if rest, ok := strings.CutPrefix(name.Name, "max"); ok && rest != "" && strings.ToUpper(rest[:1]) == rest[:1] {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
