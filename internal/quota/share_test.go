package quota

import "testing"

func TestAcquireShare(t *testing.T) {
	var n Counter[string]
	acquire := func(principal string, want bool) {
		t.Helper()
		if got := AcquireShare(&n, principal, 5); got != want {
			t.Errorf("%q: %t", principal, got)
		}
	}
	for range 3 {
		acquire("1", true)
	}
	acquire("1", false)
	acquire("2", true)
	acquire("2", true)
	acquire("2", false) // the total limit is five
	acquire("3", false)
	n.Release("1")
	acquire("3", true)
	acquire("1", false)
	for _, principal := range []string{"1", "1", "2", "2", "3"} {
		n.Release(principal)
	}
	for range 5 { // without authentication there is one principal
		acquire("", true)
	}
	acquire("", false)
	for range 5 {
		n.Release("")
	}
	if n.Total() != 0 || n.Keys() != 0 {
		t.Errorf("%d items of %d principals are left", n.Total(), n.Keys())
	}
}
