//go:build unix

package integration

import (
	"bytes"
	"os"
	"testing"
)

// If templates are executed, the linker keeps every exported method of every type, because a
// template may name any of them: 2 MB in the binary, a good part of which stays in memory.
func TestBinary_LinksNoTemplates(t *testing.T) {
	program, err := os.ReadFile(gateway(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("mcpgateway/catalog.ParsePage")) {
		t.Fatal("the names of functions are not in the binary")
	}
	if bytes.Contains(program, []byte("text/template.(*state).evalField")) {
		t.Error(
			"text/template is linked: something calls cobra's Set…Template, or runs a template itself")
	}
}
