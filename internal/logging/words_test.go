package logging_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"mcpgateway/internal/logging"
)

// TestMaskKeepsGatewayMessages_F_CLI_8 reads the string literals of the gateway's own code.
func TestMaskKeepsGatewayMessages_F_CLI_8(t *testing.T) {
	mask := logging.NewMask("some-known-secret")
	seen := 0
	// Package secrets contains patterns instead of messages.
	others := []string{"testdata", "node_modules", "integration", "chaos", "bench", "secrets"}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(others, name):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, "earer ") || strings.Contains(text, "uthorization") {
				seen++
			}
			if got := mask.String(text); got != text {
				t.Errorf("%s: %q becomes %q", path, text, got)
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 10 {
		t.Errorf("%d literals have such words, %v", seen, err)
	}
}
