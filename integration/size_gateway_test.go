//go:build unix

package integration

import (
	"bytes"
	"os"
	"testing"
)

// Where templates are run, the linker keeps every exported method of every type, for a template may name any: 2 MB of
// program, of which a good part stays in memory.
func TestTheBinaryRunsNoTemplates(t *testing.T) {
	program, err := os.ReadFile(gateway(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("mcpgateway/catalog.ParsePage")) {
		t.Fatal("the names of functions are not in the binary")
	}
	if bytes.Contains(program, []byte("text/template.(*state).evalField")) {
		t.Error("text/template is linked: something calls cobra's Set…Template, or runs a template itself")
	}
}
