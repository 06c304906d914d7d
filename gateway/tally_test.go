package gateway

import "testing"

func TestTally_LeavesRoomForOthers(t *testing.T) {
	var n tally
	enter := func(who string, want bool) {
		t.Helper()
		if got := n.enter(who, 5, 3); got != want {
			t.Errorf("%q: %t", who, got)
		}
	}
	for range 3 {
		enter("", true)
	}
	enter("", false) // that nobody has a name makes no exception
	enter("2", true)
	enter("2", true)
	enter("2", false) // there are five
	enter("3", false)
	n.leave("")
	enter("3", true)
	enter("", false)
	for _, who := range []string{"", "", "2", "2", "3"} {
		n.leave(who)
	}
	if n.all != 0 || len(n.per) != 0 {
		t.Errorf("%d are left, %v", n.all, n.per)
	}
}
