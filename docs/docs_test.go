// Package docs_test checks documents against the code.
package docs_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// TestLinks checks that each relative link in the documents leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob("decisions/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, file := range slices.Concat(files, decisions, []string{"../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md"}) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: the link %s leads nowhere", file, m[1])
			} else if anchor != "" && !slices.Contains(headings(t, path), anchor) {
				t.Errorf("%s: the link %s leads to no heading", file, m[1])
			}
		}
	}
}

// headings returns the anchors of the headings in a document.
func headings(t *testing.T, path string) (all []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}
