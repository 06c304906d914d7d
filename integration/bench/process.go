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

// A process is one that bench has started.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func spawn(command ...string) (*process, error) {
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

// end ends the process: one at a pipe when its stdin does, one that listens by a signal. It waits for it, and kills it
// after a while.
func (p *process) end() {
	p.in.Close()
	for after, signal := range map[time.Duration]os.Signal{200 * time.Millisecond: syscall.SIGTERM, 10 * time.Second: os.Kill} {
		defer time.AfterFunc(after, func() { _ = p.cmd.Process.Signal(signal) }).Stop()
	}
	_ = p.cmd.Wait()
}

// resident returns how many bytes of memory a process has, 0 where there is no /proc.
func resident(pid int) int {
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

// place returns an address of this machine at which nobody listens.
func place() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// listens waits until somebody listens at an address.
func listens(address string) error {
	const patience = 30 * time.Second
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if time.Since(began) > patience {
			return fmt.Errorf("nobody listens at %s: %w", address, err)
		}
	}
}
