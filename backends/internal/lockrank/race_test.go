//go:build race

package lockrank

import "testing"

type (
	outer    [1]struct{}
	inner    [2]struct{}
	innerToo [2]struct{}
)

// A goroutine that locks in the wrong order panics, and one that locks in the right order does not.
func TestWrongOrderPanics(t *testing.T) {
	var a Mutex[outer]
	var b, otherB Mutex[inner]
	var c Mutex[innerToo]
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	if panics(func() {
		for range 2 {
			a.Lock()
			b.Lock()
			a.Unlock()
			b.Unlock()
		}
	}) {
		t.Fatal("the right order panics")
	}
	done := make(chan bool)
	a.Lock()
	go func() {
		b.Lock()
		b.Unlock()
		done <- true
	}()
	<-done // another goroutine has its own order
	a.Unlock()
	b.Lock()
	defer b.Unlock()
	for name, wrong := range map[string]func(){
		"reverse order":           a.Lock,
		"same type":               otherB.Lock,
		"same rank":               c.Lock,
		"unlock without the lock": a.Unlock,
	} {
		if !panics(wrong) {
			t.Errorf("%s does not panic", name)
		}
	}
}
