//go:build unix

package procgroup

import (
	"os/exec"
	"testing"
	"time"
)

// If forks is full, a start waits for another start. A start that does not return delays
// the others, but does not prevent them.
func TestStartsWaitForEachOther(t *testing.T) {
	r := childRegistry{started: make(map[int]int), changed: make(chan struct{}, 1),
		forks: make(chan struct{}, 1)}
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
	r.forks <- struct{}{} // a start that does not return
	if took := start(); took < forkTimeout {
		t.Errorf("a second start took %v, less than %v", took, forkTimeout)
	}
	<-r.forks
	start()
	if len(r.forks) > 0 {
		t.Error("a start is still in progress")
	}
}
