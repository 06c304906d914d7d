package backends

import (
	"fmt"
	"testing"

	"mcpgateway/catalog"
)

// The logged names are remembered up to a limit. Beyond the limit all of them are forgotten, and
// may be logged again.
func TestLoggedNamesAreBounded(t *testing.T) {
	s := &nameLog{logged: make(map[loggedName]bool)}
	for n := range maxLoggedNames {
		s.logged[loggedName{original: fmt.Sprint(n)}] = true
	}
	s.logNames(catalog.Merge(catalog.Options{}, nil), catalog.PrefixOnCollision)
	if len(s.logged) != maxLoggedNames {
		t.Errorf("%d are remembered at the bound", len(s.logged))
	}
	s.logged[loggedName{original: "one more"}] = true
	s.logNames(catalog.Merge(catalog.Options{}, nil), catalog.PrefixOnCollision)
	if len(s.logged) != 0 {
		t.Errorf("%d are remembered", len(s.logged))
	}
}

// The names of removed backends are remembered up to a limit.
func TestRemovedNamesAreBounded(t *testing.T) {
	m := &backendTable{removedNames: make(map[string]bool)}
	for n := range maxRemovedNames + 1 {
		m.addRemoved(fmt.Sprint(n))
	}
	if len(m.removedNames) != maxRemovedNames {
		t.Errorf("%d names are remembered", len(m.removedNames))
	}
}
