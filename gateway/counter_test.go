package gateway

import "testing"

func TestCounter_PerPrincipalLimit(t *testing.T) {
	var n counter
	enter := func(letter string, want bool) {
		t.Helper()
		if got := n.acquire(letter, 5); got != want {
			t.Errorf("%q: %t", letter, got)
		}
	}
	for range 3 {
		enter("1", true)
	}
	enter("1", false)
	enter("2", true)
	enter("2", true)
	enter("2", false) // the total limit is five
	enter("3", false)
	n.release("1")
	enter("3", true)
	enter("1", false)
	for _, letter := range []string{"1", "1", "2", "2", "3"} {
		n.release(letter)
	}
	for range 5 { // without authentication there is one principal
		enter("", true)
	}
	enter("", false)
	for range 5 {
		n.release("")
	}
	if n.total != 0 || len(n.perPrincipal) != 0 {
		t.Errorf("%d are left, %v", n.total, n.perPrincipal)
	}
}
