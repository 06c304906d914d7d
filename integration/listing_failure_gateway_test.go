//go:build unix

package integration

import (
	"strings"
	"testing"
	"time"
)

// check and tools report the reason after the first failure of a listing, and do not wait for
// another one.
func TestCheck_ListingFailure_F_LOG_2(t *testing.T) {
	t.Parallel()
	broken := listBackend(t, "broken", map[string][]string{"prompts": nil, "resources": nil,
		"resourceTemplates": nil})
	s := newSetup(t, nil, backend{Name: "demo", Embedded: "demo"}, broken)
	for _, verb := range []string{"check", "tools"} {
		began := time.Now()
		code, out := s.runVerb(verb)
		if code != 1 || !strings.Contains(out, "broken") ||
			!strings.Contains(out, "tools/list: fetch failed") || !strings.Contains(out, "demo") {
			t.Errorf("%s: exit code %d\n%s", verb, code, out)
		}
		if took := time.Since(began); took > 20*time.Second { // start_timeout is 60 s
			t.Errorf("%s took %v", verb, took)
		}
	}
}
