package procgroup

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// procInfo is the state of a process, read from /proc.
type procInfo struct {
	processKey
	parent int
	zombie bool // ended but not reaped
}

// A procScanner scans all processes. A scan is more expensive than most operations of this process,
// and many goroutines need a scan when many children end at the same time. Therefore each scan
// serves all callers that requested one before it began.
type procScanner struct {
	scanning sync.Mutex // held during a scan

	mu   sync.Mutex
	next *procScan // next scan, not started yet; nil = not requested
}

// A procScan is one scan and its result.
type procScan struct {
	once sync.Once
	all  []procInfo
}

var procs procScanner

// processes returns all visible processes, as found by a scan that starts after the call. The
// result is shared and must not be modified.
func processes() []procInfo {
	procs.mu.Lock()
	if procs.next == nil {
		procs.next = new(procScan)
	}
	scan := procs.next
	procs.mu.Unlock()
	scan.once.Do(func() {
		procs.scanning.Lock()
		defer procs.scanning.Unlock()
		procs.mu.Lock()
		procs.next = nil // later callers need a later scan
		procs.mu.Unlock()
		scan.all = scanAll()
	})
	return scan.all
}

func scanAll() []procInfo {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make([]procInfo, 0, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProc(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// readProc reads the beginning of /proc/PID/stat: the needed fields lie within 500 bytes. An
// [os.File] would need twice as many system calls, and would allocate.
func readProc(pid int) (procInfo, bool) {
	var text [512]byte
	var fd, n int
	err := retryInterrupted(func() (err error) {
		fd, err = unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return procInfo{}, false
	}
	err = retryInterrupted(func() (err error) {
		n, err = unix.Read(fd, text[:])
		return err
	})
	unix.Close(fd)
	if err != nil {
		return procInfo{}, false
	}
	return readStat(pid, text[:n])
}

// retryInterrupted repeats a system call that was interrupted by a signal.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// readStat parses a stat file (proc_pid_stat(5)). The name of the program, in parentheses, may
// contain any characters.
func readStat(pid int, text []byte) (procInfo, bool) {
	const state, parent, start = 0, 1, 19 // indexes of the fields after the name
	p := procInfo{processKey: processKey{pid: pid}}
	rest := text[bytes.LastIndexByte(text, ')')+1:]
	for i := 0; ; i++ {
		rest = bytes.TrimLeft(rest, " ")
		field, more, found := bytes.Cut(rest, []byte(" "))
		if !found {
			return procInfo{}, false // the text is incomplete
		}
		rest = more
		switch i {
		case state:
			p.zombie = field[0] == 'Z' || field[0] == 'X'
		case parent:
			p.parent = int(digits(field))
		case start:
			p.start = digits(field)
			return p, true
		}
	}
}

// digits parses a decimal number.
func digits(text []byte) (n uint64) {
	for _, d := range text {
		n = 10*n + uint64(d-'0')
	}
	return n
}
