//go:build unix

package procgroup

import (
	"os/exec"
	"testing"
	"time"
)

// A child is not started while another start is in progress. A start that does not return delays
// the others, but does not prevent them.
func TestStartsWaitForEachOther(t *testing.T) {
	r := childRegistry{started: make(map[int]int), changed: make(chan struct{}, 1),
		slot: make(chan struct{}, 1)}
	start := func() time.Duration {
		cmd := exec.Command("true")
		began := time.Now()
		if err := r.start(cmd); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		r.wait(cmd)
		return took
	}
	r.slot <- struct{}{} // a start that does not return
	if took := start(); took < slotTimeout {
		t.Errorf("a second start took %v, less than %v", took, slotTimeout)
	}
	<-r.slot
	start() // returns the slot
	if len(r.slot) > 0 {
		t.Error("the slot is not free after a start")
	}
}
