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
	"unicode/utf8"

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

// TestLimitsDoc checks limits.md: each row names a test that exists, and the constants in it are
// exactly the constants of the code that bound something (maxThis, maxThat).
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
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST && isProduct(f.Dir) &&
				!f.IsTest() {
				for _, name := range maxima(g) {
					bounds[f.Syntax.Name.Name+"."+name] = true
				}
			}
		}
	}
	for name := range bounds {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/limits.md has no row for the bound %s", name)
		}
	}
	for _, named := range regexp.MustCompile("`([a-z]+\\.max[A-Z]\\w*)`").FindAllStringSubmatch(doc,
		-1) {
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
		if cells := strings.Count(line, "|"); strings.HasPrefix(line, "| ") &&
			!strings.HasPrefix(line, "| what ") && (len(named) == 0 || cells != 5) {
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
			if rest, ok := strings.CutPrefix(name.Name, "max"); ok && rest != "" &&
				strings.ToUpper(rest[:1]) == rest[:1] {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// TestLinks checks that each relative link in the documents leads to a file, and to a heading of
// it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, file := range documents(t) {
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
				t.Errorf("%s: the file of the link %s does not exist", file, m[1])
			} else if anchor != "" && !slices.Contains(headings(t, path), anchor) {
				t.Errorf("%s: the heading of the link %s does not exist", file, m[1])
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

// documents returns the paths of all documents.
func documents(t *testing.T) (all []string) {
	for _, pattern := range []string{"../*.md", "*.md", "decisions/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

// TestColumns checks that lines of documents have at most 120 columns, except rows of tables.
func TestColumns(t *testing.T) {
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			if n > 120 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d has %d columns; at most 120 are allowed", file, number, n)
			}
		}
	}
}

// TestReadme checks that README.md has at most 150 lines, and that its first command is the one
// that .ci/run runs.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 150 {
		t.Errorf("README.md has %d lines; at most 150 are allowed", n)
	}
	_, block, _ := strings.Cut(string(text), "\n```\n")
	first, _, _ := strings.Cut(block, "\n")
	first, _, _ = strings.Cut(first, "#")
	first = strings.TrimSpace(first)
	_, step, _ := strings.Cut(string(ci), "step \"the README's first command\"\n")
	if first == "" || !strings.HasPrefix(step, first+"\n") {
		t.Errorf("the first command of README.md is %q, which .ci/run does not run", first)
	}
	if !strings.Contains(string(text), "`go test ./...`") {
		t.Error("README.md does not name the command that runs all tests")
	}
}
