package httpserver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// The time of a comparison depends neither on the token of the request nor on the position of the
// token in the configuration: credentialOf compares hashes with ConstantTimeCompare, and its loop
// has no branch.
func TestTokensAreComparedInConstantTime(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "authenticate.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	compares := 0
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Name.Name != "credentialOf" {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			loop, ok := n.(*ast.RangeStmt)
			if !ok {
				return true
			}
			ast.Inspect(loop.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.IfStmt, *ast.SwitchStmt, *ast.BranchStmt, *ast.ReturnStmt,
					*ast.BinaryExpr:
					t.Errorf("the loop has a branch or a comparison: %T", n)
				case *ast.SelectorExpr:
					if n.Sel.Name == "ConstantTimeCompare" {
						compares++
					}
				}
				return true
			})
			return false
		})
	}
	if compares != 1 {
		t.Errorf("%d comparisons in constant time", compares)
	}
}
