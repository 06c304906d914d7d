package docs_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"mcpgateway/internal/mcptest/gosource"
)

// fromServers are quoted texts of servers, which are not in the code of the gateway.
var fromServers = map[string]bool{
	"cannot be sent while serving a request on protocol version": true,
}

// TestTroubleshootingDoc checks that the code has each error text that troubleshooting.md quotes in
// the first column of the tables from "Errors of the gateway" on, except texts of servers.
func TestTroubleshootingDoc(t *testing.T) {
	text, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, errors, ok := strings.Cut(string(text), "\n## Errors of the gateway")
	if !ok {
		t.Fatal("docs/troubleshooting.md has no section of errors")
	}
	var literals strings.Builder
	for _, f := range gosource.Files(t) {
		if f.IsTest() || !isProduct(f.Dir) {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					literals.WriteString(s)
					literals.WriteByte('\x00')
				}
			}
			return true
		})
	}
	code, quoted := literals.String(), 0
	span := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(errors) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 3 {
			continue
		}
		for _, m := range span.FindAllStringSubmatch(cells[0], -1) {
			if quoted++; !strings.Contains(code, m[1]) && !fromServers[m[1]] {
				t.Errorf(
					"docs/troubleshooting.md quotes %q, which is not in the code: quote the new text", m[1])
			}
		}
	}
	if quoted < 40 {
		t.Errorf("docs/troubleshooting.md quotes only %d texts", quoted)
	}
}
