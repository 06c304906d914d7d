package node

import (
	"strings"
	"testing"
)

// The nesting of JSON is bounded.
func TestJSONNestsToABound(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if _, _, err := parseJSON(nest(maxJSONDepth)); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if _, _, err := parseJSON(nest(maxJSONDepth + 1)); err == nil {
		t.Error("no error beyond the bound")
	}
}
