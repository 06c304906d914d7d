package house_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/reliability.md names exist.
func TestReliabilityDoc(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool)
	eachFile(t, func(_, path string, file *ast.File) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(path, "_test.go") {
				tests[f.Name.Name] = true
			}
		}
	})
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

// docs/limits.md is true as far as a test can tell: each test that it names exists, each row has one, and each
// constant that bounds something (maxThis, maxThat) is in it, by the name of its package and its own, and no other is.
func TestLimitsDoc(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	tests, bounds := make(map[string]bool), make(map[string]bool)
	eachFile(t, func(room, path string, file *ast.File) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(path, "_test.go") {
				tests[f.Name.Name] = true
			}
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST && isProduct(room) && !strings.HasSuffix(path, "_test.go") {
				for _, name := range maxima(g) {
					bounds[file.Name.Name+"."+name] = true
				}
			}
		}
	})
	for name := range bounds {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("%s is a bound that docs/limits.md does not tell of", name)
		}
	}
	for _, named := range regexp.MustCompile("`([a-z]+\\.max[A-Z]\\w*)`").FindAllStringSubmatch(doc, -1) {
		if !bounds[named[1]] {
			t.Errorf("docs/limits.md tells of %s, which does not exist", named[1])
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

func isProduct(room string) bool {
	return room != "bench" && room != "chaos" && room != "integration" && !strings.HasPrefix(room, "internal/")
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
