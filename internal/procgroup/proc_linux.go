package procgroup

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// procInfo is what one process looks like in /proc.
type procInfo struct {
	process
	parent int
	zombie bool // but not reaped
}

// A procScanner is a look at all processes. It costs the system more than most of what this one does, and
// when much dies at one time all who wait for that want one: so each that is taken is for all who asked
// before it began.
type procScanner struct {
	scanning sync.Mutex // by who takes one

	mu   sync.Mutex
	next *procScan // not begun yet; nil if nobody has asked
}

// A procScan is what came out.
type procScan struct {
	once sync.Once
	all  []procInfo
}

var procs procScanner

// processes returns all there are that can be seen. It begins to look when it is called, or later. The result
// is shared, and must not be changed.
func processes() []procInfo {
	procs.mu.Lock()
	if procs.next == nil {
		procs.next = new(procScan)
	}
	mine := procs.next
	procs.mu.Unlock()
	mine.once.Do(func() {
		procs.scanning.Lock()
		defer procs.scanning.Unlock()
		procs.mu.Lock()
		procs.next = nil // who comes from now on would miss what is looked at first
		procs.mu.Unlock()
		mine.all = scanAll()
	})
	return mine.all
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

// readProc reads the beginning of /proc/PID/stat, for as far as it is looked at it has less than 500 bytes. An [os.File]
// would take twice the system calls, and leave garbage.
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

// retryInterrupted calls until it is not interrupted by a signal.
func retryInterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// readStat reads what stands in a stat file (proc_pid_stat(5)). The name of the program, in parentheses,
// may be anything.
func readStat(pid int, text []byte) (procInfo, bool) {
	const state, parent, start = 0, 1, 19 // behind the name
	p := procInfo{process: process{pid: pid}}
	rest := text[bytes.LastIndexByte(text, ')')+1:]
	for i := 0; ; i++ {
		rest = bytes.TrimLeft(rest, " ")
		field, more, found := bytes.Cut(rest, []byte(" "))
		if !found {
			return procInfo{}, false // it ends too early
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

// digits reads a number.
func digits(text []byte) (n uint64) {
	for _, d := range text {
		n = 10*n + uint64(d-'0')
	}
	return n
}
