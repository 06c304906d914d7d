//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A gatewayProcess is the gateway that serves the clients over HTTP.
type gatewayProcess struct {
	envMark  string // mark in the environment of all processes
	socket   string // path of its debug socket
	cmd      *exec.Cmd
	log      *os.File
	url      string // its base URL, without /mcp
	exited   chan struct{}
	stopping atomic.Bool // set when the harness ends the gateway
}

// start starts the gateway with a configuration and waits until it is ready. Its log is written to
// the file at logPath.
func (g *gatewayProcess) start(ctx context.Context, binary, config, logPath string) error {
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	g.log = log
	g.cmd = exec.Command(binary, "serve", "-c", config, "--listen", "127.0.0.1:0")
	g.cmd.Stderr = log
	g.cmd.Env = append(os.Environ(), markEnv+"="+g.envMark, "GATEWAY_DEBUG="+g.socket)
	if err := g.cmd.Start(); err != nil {
		return err
	}
	g.exited = make(chan struct{})
	go func() {
		defer close(g.exited)
		_ = g.cmd.Wait()
	}()
	deadline := time.Now().Add(60 * time.Second)
	for g.url == "" || !g.ready() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline), g.hasExited():
			return fmt.Errorf("the gateway does not become ready: see %s", log.Name())
		}
		g.url = g.findURL()
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func (g *gatewayProcess) hasExited() bool {
	select {
	case <-g.exited:
		return true
	default:
		return false
	}
}

// findURL reads the gateway's URL from its log.
func (g *gatewayProcess) findURL() string {
	f, err := os.Open(g.log.Name())
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if _, rest, ok := strings.Cut(lines.Text(), "serving at "); ok {
			url, _, _ := strings.Cut(rest, "/mcp")
			return url
		}
	}
	return ""
}

func (g *gatewayProcess) ready() bool {
	res, err := http.Get(g.url + "/readyz")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode == http.StatusOK
}

// reload makes the gateway reload its configuration.
func (g *gatewayProcess) reload() { _ = g.cmd.Process.Signal(syscall.SIGHUP) }

// stop ends the gateway with SIGTERM and returns the problems of the shutdown.
func (g *gatewayProcess) stop() (problems []string) {
	began := time.Now()
	g.stopping.Store(true)
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.exited:
		if !g.cmd.ProcessState.Success() {
			problems = append(problems, "the gateway exited with "+g.cmd.ProcessState.String())
		}
	case <-time.After(15 * time.Second):
		problems = append(problems, "the gateway does not exit within 15s of SIGTERM")
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
	fmt.Printf("the gateway exited %v after SIGTERM\n", time.Since(began).Round(time.Millisecond))
	var left []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left = left[:0]
		for _, p := range withMark(g.envMark) {
			left = append(left, p.String())
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, l := range left {
		problems = append(problems, "still running: "+l)
	}
	return problems
}

// kill kills the processes that still run, and closes the log.
func (g *gatewayProcess) kill() {
	g.stopping.Store(true)
	if g.cmd != nil && g.cmd.Process != nil && !g.hasExited() {
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
	for _, p := range withMark(g.envMark) {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	if g.log != nil {
		g.log.Close()
	}
}

// footprint reads the footprint from the gateway's debug socket and /proc.
func (g *gatewayProcess) footprint(ctx context.Context) (f footprint, err error) {
	text, err := g.debug(ctx, "/")
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return f, err
	}
	pid := g.cmd.Process.Pid
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	f.Descriptors = len(fds)
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kb uint64
			fmt.Sscan(rest, &kb)
			f.RSS = kb << 10
		}
	}
	f.Processes = len(withMark(g.envMark))
	own, children := cpu(pid)
	f.Zombies, f.CPU = zombies(pid), own+children
	return f, nil
}

// processorTime returns the processor times used so far.
func (g *gatewayProcess) processorTime() processorTimes {
	if g.cmd == nil || g.cmd.Process == nil {
		return processorTimes{}
	}
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	ticks := 0
	for i, field := range strings.Fields(line) {
		// all but idle and iowait
		if n, _ := strconv.Atoi(field); i > 0 && i != 4 && i != 5 && i < 8 {
			ticks += n
		}
	}
	gateway, ended := cpu(g.cmd.Process.Pid)
	self, _ := cpu(os.Getpid())
	return processorTimes{gateway, ended, self, time.Duration(ticks) * 10 * time.Millisecond}
}

// debug reads a path from the gateway's debug socket.
func (g *gatewayProcess) debug(ctx context.Context, path string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://debug"+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}
