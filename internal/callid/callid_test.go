package callid

import (
	"regexp"
	"sync"
	"testing"
)

func TestNumbersAreUnique(t *testing.T) {
	const goroutines, each = 8, 1000
	var seen sync.Map
	var running sync.WaitGroup
	for range goroutines {
		running.Go(func() {
			for range each {
				if seq := Next(); seq == 0 {
					t.Error("number 0")
				} else if _, twice := seen.LoadOrStore(seq, true); twice {
					t.Errorf("number %d twice", seq)
				}
			}
		})
	}
	running.Wait()
}

func TestTextHasPrefixOfTheProcess(t *testing.T) {
	one, other := Text(1), Text(36*36+36*10+7)
	if !regexp.MustCompile(`^[0-9a-z]{8}-1$`).MatchString(one) {
		t.Errorf("id %q", one)
	}
	if want := one[:prefixSize] + "-1a7"; other != want {
		t.Errorf("id %q, want %q", other, want)
	}
	if got := string(Append([]byte("call "), 1)); got != "call "+one {
		t.Errorf("Append: %q", got)
	}
}

func TestAllocations_OfNumbersAndIDs(t *testing.T) {
	b := make([]byte, 0, 32)
	if n := testing.AllocsPerRun(100, func() { b = Append(b[:0], Next()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParse(t *testing.T) {
	for _, seq := range []uint64{1, 36, 1 << 63} {
		if got, ok := Parse(Text(seq)); got != seq || !ok {
			t.Errorf("%d: %d %v", seq, got, ok)
		}
	}
	for _, id := range []string{"", "x", Prefix(), Prefix() + "-", Prefix() + "-01",
		Prefix() + "-+1", Prefix() + "-A", "00000000-1"} {
		if got, ok := Parse(id); ok {
			t.Errorf("%q: %d", id, got)
		}
	}
}
