package docs_test

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/gosource"
)

// A type beyond these sizes usually has two subjects.
const (
	maxFields      = 15
	maxMethodFiles = 4
)

// A typeSize is the number of fields of a struct, and of the files that contain methods of a type.
// An embedded field counts as one.
type typeSize struct {
	fields int
	files  map[string]bool
}

// TestLargeTypes checks that the table "Large types" in architecture.md has a row for each type of
// the product beyond maxFields or maxMethodFiles, and no other row. Options are exempt.
func TestLargeTypes(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## Large types\n")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := make(map[string]bool)
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| [^|]+ \\|$")
	for _, match := range row.FindAllStringSubmatch(table, -1) {
		listed[match[1]] = true
	}
	for name, size := range typeSizes(t) {
		large := size.fields > maxFields || len(size.files) > maxMethodFiles
		switch {
		case large && !listed[name]:
			t.Errorf("%s has %d fields, and methods in %d files; split it, or give a reason in the "+
				"table \"Large types\" of architecture.md", name, size.fields, len(size.files))
		case !large && listed[name]:
			t.Errorf("%s is not large any more: remove its row from the table \"Large types\"", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("the table \"Large types\" names %s, which does not exist", name)
	}
}

// typeSizes returns the sizes of the types of the product, by package and name.
func typeSizes(t *testing.T) map[string]*typeSize {
	sizes := make(map[string]*typeSize)
	of := func(dir, name string) *typeSize {
		key := fmt.Sprint(path.Base(dir), ".", name)
		if sizes[key] == nil {
			sizes[key] = &typeSize{files: make(map[string]bool)}
		}
		return sizes[key]
	}
	for _, f := range gosource.Files(t) {
		if f.IsTest() || strings.HasPrefix(f.Dir, "integration") ||
			strings.HasPrefix(f.Dir, "internal/mcptest") {
			continue
		}
		for _, d := range f.Syntax.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.Name != "Options" {
						of(f.Dir, s.Name.Name).fields += fieldsOf(s.Type)
					}
				}
			case *ast.FuncDecl:
				if name := receiverType(d); name != "" && name != "Options" {
					of(f.Dir, name).files[f.Path] = true
				}
			}
		}
	}
	return sizes
}

func fieldsOf(t ast.Expr) (n int) {
	s, ok := t.(*ast.StructType)
	if !ok {
		return 0
	}
	for _, field := range s.Fields.List {
		n += max(1, len(field.Names))
	}
	return n
}

// receiverType returns the name of the type that a method belongs to; "" for a function.
func receiverType(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	switch generic := t.(type) {
	case *ast.IndexExpr:
		t = generic.X
	case *ast.IndexListExpr:
		t = generic.X
	}
	name, _ := t.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}
