package procgroup

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

func TestReadStat(t *testing.T) {
	fields := " S 41 7 7 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 5 0 8765432101 1234 5 18446744073709551615 1"
	for name, c := range map[string]struct {
		text string
		want procInfo
		ok   bool
	}{
		"plain": {"7 (server)" + fields,
			procInfo{processKey{7, 8765432101}, 41, false}, true},
		"a name like the fields": {"7 (a) R 1 (b) Z)" + fields,
			procInfo{processKey{7, 8765432101}, 41, false}, true},
		"a zombie": {"7 (server)" + strings.Replace(fields, "S", "Z", 1),
			procInfo{processKey{7, 8765432101}, 41, true}, true},
		"cut after the start": {"7 (server)" + strings.SplitAfter(fields, "8765432101 ")[0],
			procInfo{processKey{7, 8765432101}, 41, false}, true},
		"cut in the start": {"7 (server)" + strings.SplitAfter(fields, "87654")[0],
			procInfo{}, false},
		"cut in the name": {"7 (ser", procInfo{}, false},
		"nothing":         {"", procInfo{}, false},
	} {
		if got, ok := readStat(7, []byte(c.text)); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
}

// processes returns the processes that run at the time of the call, even with concurrent calls.
func TestAScanStartsAfterTheCall(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				cmd := exec.Command("/bin/sleep", "60")
				if err := registry.start(cmd); err != nil {
					t.Error(err)
					return
				}
				if !isChildIn(processes(), cmd.Process.Pid) {
					t.Errorf("%d runs and is missing", cmd.Process.Pid)
				}
				_ = cmd.Process.Kill()
				registry.wait(cmd)
				if isChildIn(processes(), cmd.Process.Pid) {
					t.Errorf("%d has ended and is listed", cmd.Process.Pid)
				}
			}
		})
	}
	all.Wait()
}

// isChildIn reports whether the process pid is in all, as a child of this process.
func isChildIn(all []procInfo, pid int) bool {
	for _, p := range all {
		if p.pid == pid && p.parent == os.Getpid() {
			return true
		}
	}
	return false
}

func BenchmarkProcesses(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		processes()
	}
}
