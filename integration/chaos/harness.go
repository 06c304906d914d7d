//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"mcpgateway/internal/mcptest/faults"
)

// A harness runs a gateway with its backends.
type harness struct {
	*options
	dir       string // directory of all files
	envMark   string // mark in the environment of all processes
	binary    string
	stub      string
	config    string
	backends  []*backend
	byName    map[string]*backend
	httpStubs []*http.Server

	cmd    *exec.Cmd
	log    *os.File
	url    string // base URL of the gateway, without /mcp
	exited chan struct{}

	stopping atomic.Bool // set when the harness ends the gateway

	reloads bool

	stats *stats
}

func build(ctx context.Context, p *options) (*harness, error) {
	dir, err := os.MkdirTemp("", "gateway-chaos-")
	if err != nil {
		return nil, err
	}
	w := &harness{options: p, dir: dir, envMark: filepath.Base(dir), binary: p.gateway,
		stub:   filepath.Join(dir, "stub"),
		config: filepath.Join(dir, "config", "gateway.yaml"), backends: allBackends(),
		byName: make(map[string]*backend), stats: newStats(p.seed)}
	// Only configurations are written to this directory, because the gateway watches it.
	if err := os.Mkdir(filepath.Dir(w.config), 0o700); err != nil {
		return nil, err
	}
	if w.binary == "" {
		w.binary = filepath.Join(dir, "gateway")
		if err := compile(ctx, w.binary, "./cmd/gateway"); err != nil {
			return nil, err
		}
	}
	if err := compile(ctx, w.stub, "./internal/mcptest/faults/stub"); err != nil {
		return nil, err
	}
	for _, b := range w.backends {
		w.byName[b.name] = b
		if b.http {
			if err := w.serveHTTPStub(b); err != nil {
				return nil, err
			}
		}
	}
	w.reloads = p.reload == "yes" || p.reload == "auto" && canReload(ctx, w.binary)
	return w, w.start(ctx)
}

func compile(ctx context.Context, to, what string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, what)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s (run chaos in the root of the repository): %w", what, err)
	}
	return nil
}

// canReload reports whether the gateway reloads its configuration on SIGHUP. Old versions exit
// instead.
func canReload(ctx context.Context, binary string) bool {
	help, _ := exec.CommandContext(ctx, binary, "check", "--help").CombinedOutput()
	return strings.Contains(string(help), "--diff")
}

func (w *harness) serveHTTPStub(b *backend) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b.httpStub = faults.NewHTTPStub(b.script)
	b.url = "http://" + ln.Addr().String() + "/mcp"
	server := &http.Server{Handler: b.httpStub, ErrorLog: discardLog()}
	w.httpStubs = append(w.httpStubs, server)
	go server.Serve(ln)
	return nil
}

// start starts the gateway and waits until it is ready.
func (w *harness) start(ctx context.Context) error {
	if err := writeConfig(w.config, configuration(w.backends, w.dir, "main", w.stub,
		w.envMark)); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(w.dir, "gateway.log"))
	if err != nil {
		return err
	}
	w.log = log
	w.cmd = exec.Command(w.binary, "serve", "-c", w.config, "--listen", "127.0.0.1:0")
	w.cmd.Stderr = log
	w.cmd.Env = append(os.Environ(), markEnv+"="+w.envMark, "GATEWAY_DEBUG="+w.socket())
	if err := w.cmd.Start(); err != nil {
		return err
	}
	w.exited = make(chan struct{})
	go func() {
		defer close(w.exited)
		_ = w.cmd.Wait()
	}()
	deadline := time.Now().Add(60 * time.Second)
	for w.url == "" || !w.ready() {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline), w.hasExited():
			return fmt.Errorf("the gateway does not become ready: see %s", log.Name())
		}
		w.url = w.findURL()
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func (w *harness) socket() string { return filepath.Join(w.dir, "debug") }

func (w *harness) hasExited() bool {
	select {
	case <-w.exited:
		return true
	default:
		return false
	}
}

// findURL reads the gateway's URL from its log.
func (w *harness) findURL() string {
	f, err := os.Open(w.log.Name())
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

func (w *harness) ready() bool {
	res, err := http.Get(w.url + "/readyz")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode == http.StatusOK
}

// stop ends the gateway with SIGTERM and returns the problems of the shutdown.
func (w *harness) stop() (problems []string) {
	began := time.Now()
	w.stopping.Store(true)
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.exited:
		if !w.cmd.ProcessState.Success() {
			problems = append(problems, "the gateway exited with "+w.cmd.ProcessState.String())
		}
	case <-time.After(15 * time.Second):
		problems = append(problems, "the gateway does not exit within 15s of SIGTERM")
		_ = w.cmd.Process.Kill()
		<-w.exited
	}
	fmt.Printf("the gateway exited %v after SIGTERM\n", time.Since(began).Round(time.Millisecond))
	var left []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left = left[:0]
		for _, p := range withMark(w.envMark) {
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

// cleanUp kills the processes that still run. If clean is true, it removes the directory.
func (w *harness) cleanUp(clean bool) {
	w.stopping.Store(true)
	if w.cmd != nil && w.cmd.Process != nil && !w.hasExited() {
		_ = w.cmd.Process.Kill()
		<-w.exited
	}
	for _, p := range withMark(w.envMark) {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	for _, s := range w.httpStubs {
		s.Close()
	}
	if w.log != nil {
		w.log.Close()
	}
	if clean {
		os.RemoveAll(w.dir)
		return
	}
	os.Remove(w.stub)
	if w.options.gateway == "" {
		os.Remove(w.binary)
	}
	fmt.Printf("logs, journals and configurations are in %s\n", w.dir)
}
