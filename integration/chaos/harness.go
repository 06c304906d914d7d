//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	gateway   *gatewayProcess
	reloads   bool
	stats     *stats
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
	w.gateway = &gatewayProcess{envMark: w.envMark, socket: filepath.Join(dir, "debug")}
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
	if err := w.writeConfig(w.backends, ""); err != nil {
		return nil, err
	}
	return w, w.gateway.start(ctx, w.binary, w.config, filepath.Join(dir, "gateway.log"))
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

// writeConfig writes the gateway's configuration with these backends; suffix is appended to it.
func (w *harness) writeConfig(backends []*backend, suffix string) error {
	text := configuration(backends, w.dir, "main", w.stub, w.envMark) + suffix
	return writeConfig(w.config, text)
}

func (w *harness) logf(format string, args ...any) {
	if w.verbose {
		fmt.Printf("%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// cleanUp kills the processes that still run. If clean is true, it removes the directory.
func (w *harness) cleanUp(clean bool) {
	w.gateway.kill()
	for _, s := range w.httpStubs {
		s.Close()
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
