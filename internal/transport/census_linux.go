package transport

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// seen is what one process looks like in /proc.
type seen struct {
	stray
	parent int
	dead   bool // but not reaped
}

// A census is a look at all processes. It costs the system more than most of what this one does, and
// when much dies at one time all who wait for that want one: so each that is taken is for all who asked
// before it began.
type census struct {
	taking sync.Mutex // by who takes one

	mu   sync.Mutex
	next *count // not begun yet; nil if nobody has asked
}

// A count is what came out.
type count struct {
	once sync.Once
	all  []seen
}

var people census

// processes returns all there are that can be seen. It begins to look when it is called, or later. The result
// is shared, and must not be changed.
func processes() []seen {
	people.mu.Lock()
	if people.next == nil {
		people.next = new(count)
	}
	mine := people.next
	people.mu.Unlock()
	mine.once.Do(func() {
		people.taking.Lock()
		defer people.taking.Unlock()
		people.mu.Lock()
		people.next = nil // who comes from now on would miss what is looked at first
		people.mu.Unlock()
		mine.all = lookAround()
	})
	return mine.all
}

func lookAround() []seen {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	all := make([]seen, 0, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := look(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// look reads the beginning of /proc/PID/stat, for as far as it is looked at it has less than 500 bytes. An [os.File]
// would take twice the system calls, and leave garbage.
func look(pid int) (seen, bool) {
	var text [512]byte
	var fd, n int
	err := again(func() (err error) {
		fd, err = unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return seen{}, false
	}
	err = again(func() (err error) {
		n, err = unix.Read(fd, text[:])
		return err
	})
	unix.Close(fd)
	if err != nil {
		return seen{}, false
	}
	return readStat(pid, text[:n])
}

// again calls until it is not interrupted by a signal.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// readStat reads what stands in a stat file (proc_pid_stat(5)). The name of the program, in parentheses,
// may be anything.
func readStat(pid int, text []byte) (seen, bool) {
	const state, parent, start = 0, 1, 19 // behind the name
	p := seen{stray: stray{pid: pid}}
	rest := text[bytes.LastIndexByte(text, ')')+1:]
	for i := 0; ; i++ {
		rest = bytes.TrimLeft(rest, " ")
		field, more, found := bytes.Cut(rest, []byte(" "))
		if !found {
			return seen{}, false // it ends too early
		}
		rest = more
		switch i {
		case state:
			p.dead = field[0] == 'Z' || field[0] == 'X'
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
