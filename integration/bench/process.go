package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A process is a child process of bench.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func startProcess(command ...string) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end closes stdin and waits for the process. It sends SIGTERM after 200 ms, for processes that
// listen on a port, and kills the process after 10 s.
func (p *process) end() {
	p.in.Close()
	for after, signal := range map[time.Duration]os.Signal{200 * time.Millisecond: syscall.SIGTERM,
		10 * time.Second: os.Kill} {
		defer time.AfterFunc(after, func() { _ = p.cmd.Process.Signal(signal) }).Stop()
	}
	_ = p.cmd.Wait()
}

// residentBytes returns the resident memory of a process; 0 on systems without /proc.
func residentBytes(pid int) int {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kb, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kb), " kB"))
			return n << 10
		}
	}
	return 0
}

// freeAddress returns a local address that is not in use.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// awaitListening waits until a process listens at an address. After 30 s it returns an error.
func awaitListening(address string) error {
	const timeout = 30 * time.Second
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if time.Since(began) > timeout {
			return fmt.Errorf("no process listens at %s: %w", address, err)
		}
	}
}
