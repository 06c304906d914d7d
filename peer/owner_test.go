package peer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Of calls that were given up, and of those whose calls were just answered, so many are remembered. While there are more
// nothing is taken to be anybody's.
func TestStraysAreBounded(t *testing.T) {
	for name, add := range map[string]func(*strays, int){
		"given up": func(s *strays, n int) { s.giveUp(int64(n), fmt.Sprint(n)) },
		"answered": func(s *strays, n int) { s.answered(fmt.Sprint(n)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var s strays
			for n := range maxStrays {
				add(&s, n)
			}
			if !s.crowd.IsZero() {
				t.Errorf("%s: there are too many of %d", name, maxStrays)
			}
			add(&s, maxStrays)
			if len(s.givenUp)+len(s.echoes) != maxStrays || !time.Now().Before(s.crowd) {
				t.Errorf("%s: %d and %d are remembered, crowded until %v", name, len(s.givenUp), len(s.echoes), s.crowd)
			}
			time.Sleep(lingering + time.Second)
			add(&s, 7)
			if n := len(s.givenUp) + len(s.echoes); n != 1 || time.Now().Before(s.crowd) {
				t.Errorf("%s: %d are left, crowded until %v", name, n, s.crowd)
			}
		})
	}
}
