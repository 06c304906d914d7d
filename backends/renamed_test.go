package backends

import (
	"fmt"
	"testing"

	"mcpgateway/catalog"
)

// What was logged of names is remembered up to a bound; beyond it all is forgotten, and may be said again.
func TestWhatWasLoggedIsForgotten(t *testing.T) {
	s := &Set{renamed: make(map[renaming]bool)}
	for n := range maxRenamed {
		s.renamed[renaming{own: fmt.Sprint(n)}] = true
	}
	s.logNames(catalog.Merge(catalog.Options{}, nil), catalog.PrefixOnCollision)
	if len(s.renamed) != maxRenamed {
		t.Errorf("%d are remembered at the bound", len(s.renamed))
	}
	s.renamed[renaming{own: "one more"}] = true
	s.logNames(catalog.Merge(catalog.Options{}, nil), catalog.PrefixOnCollision)
	if len(s.renamed) != 0 {
		t.Errorf("%d are remembered", len(s.renamed))
	}
}

// So are names that were configured once.
func TestFormerNamesAreBounded(t *testing.T) {
	m := &members{former: make(map[string]bool)}
	for n := range maxFormer + 1 {
		m.remember(fmt.Sprint(n))
	}
	if len(m.former) != maxFormer {
		t.Errorf("%d are remembered", len(m.former))
	}
}
