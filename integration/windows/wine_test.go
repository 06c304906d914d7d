//go:build wine

// Package windows tests the gateway for Windows under Wine. It needs Wine (Debian: wine64). See
// make wine.
package windows

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A winePrefix is a Wine prefix with the gateway in a directory whose name has a space.
type winePrefix struct {
	t      *testing.T
	wine   string
	prefix string
	dir    string
}

func newMachine(t *testing.T) *winePrefix {
	t.Helper()
	m := &winePrefix{t: t, wine: findWine(t), prefix: filepath.Join(t.TempDir(), "prefix"),
		dir: filepath.Join(t.TempDir(), "a directory")}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(m.dir, "gateway.exe"),
		"mcpgateway/cmd/gateway")
	build.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	t.Cleanup(func() {
		for _, pid := range m.running("") {
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
	})
	if out, err := m.command("wineboot", "-i").CombinedOutput(); err != nil {
		t.Fatalf("wineboot: %v: %s", err, out)
	}
	// Go needs a function that Wine has under another name, until Wine has this DLL.
	system := filepath.Join(m.prefix, "drive_c", "windows", "system32", "bcryptprimitives.dll")
	if _, err := os.Stat(system); err != nil {
		if err := os.WriteFile(system, forwarder("bcryptprimitives.dll", "ProcessPrng",
			"advapi32.SystemFunction036"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func findWine(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"wine64", "/usr/lib/wine/wine64", "wine"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("Wine is not installed")
	return ""
}

func (m *winePrefix) command(args ...string) *exec.Cmd {
	cmd := exec.Command(m.wine, args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "WINEPREFIX="+m.prefix, "WINEDEBUG=-all",
		"WINEDLLOVERRIDES=mscoree,mshtml=")
	return cmd
}

// running returns the processes of this prefix whose command line contains text.
func (m *winePrefix) running(text string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.Contains(string(env), "WINEPREFIX="+m.prefix+"\x00") &&
			strings.Contains(string(line), text) {
			var pid int
			fmt.Sscan(filepath.Base(dir), &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

func (m *winePrefix) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// A gatewayClient speaks to a gateway on stdin and stdout.
type gatewayClient struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func (m *winePrefix) start(config string) *gatewayClient {
	m.t.Helper()
	c := &gatewayClient{t: m.t, cmd: m.command("gateway.exe", "-c", config),
		lines: make(chan string, 100)}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	c.cmd.Stderr = &testLog{m.t}
	if err := c.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			c.lines <- scan.Text()
		}
	}()
	c.request(1, "initialize",
		`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"wine","version":"1"}}`)
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

type testLog struct{ t *testing.T }

func (l *testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", p)
	return len(p), nil
}

// request sends a request and returns its result, or its error as text.
func (c *gatewayClient) request(id int, method, params string) string {
	c.t.Helper()
	fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params)
	late := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-c.lines:
			var m struct {
				ID     int
				Result json.RawMessage
				Error  json.RawMessage
			}
			switch {
			case !ok:
				c.t.Fatalf("%s: the gateway has exited", method)
			case json.Unmarshal([]byte(line), &m) == nil && m.ID == id && m.Result != nil:
				return string(m.Result)
			case m.ID == id && m.Error != nil:
				return string(m.Error)
			}
		case <-late:
			c.t.Fatalf("%s: no response", method)
		}
	}
}

// The backends are a program and batch files (as npx is one), found by a name without an extension.
// Arguments arrive unchanged. However the gateway ends, no process is left.
func TestWindows(t *testing.T) {
	m := newMachine(t)
	m.write("demo.yaml", "state: none\nbackends: [{name: demo, embedded: demo}]\n")
	// After the server has ended, it starts a program that the end of stdin does not stop: only
	// the job does.
	m.write("shim.cmd", "@echo off\r\n\"%~dp0gateway.exe\" -c \"%~dp0demo.yaml\"\r\n"+
		"\"%~dp0gateway.exe\" serve --listen 127.0.0.1:0 -c \"%~dp0demo.yaml\" --log-level error\r\n")
	m.write("odd.cmd",
		"@echo off\r\n>\"%~dp0args.txt\" echo(%*\r\n\"%~dp0gateway.exe\" -c \"%~dp0demo.yaml\"\r\n")
	windowsDir := `Z:` + strings.ReplaceAll(m.dir, "/", `\`)
	m.write("gateway.yaml", fmt.Sprintf(`
state: none
log: {level: warn}
backends:
  - {name: exe, command: '%[1]s\gateway.exe', args: [-c, '%[1]s\demo.yaml']}
  - {name: shim, command: shim, env: {PATH: '%[1]s'}}
  - {name: odd, command: '%[1]s\odd.cmd', args: [two words, 'a|b>c^d', plain]}
`, windowsDir))
	for name, end := range map[string]func(c *gatewayClient){
		"end of stdin": func(c *gatewayClient) { c.in.Close() },
		"kill":         func(c *gatewayClient) { c.cmd.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			c := m.start("gateway.yaml")
			list := c.request(2, "tools/list", `{}`)
			for i, tool := range []string{"add", "shim__add", "odd__add"} {
				if !strings.Contains(list, `"name":"`+tool+`"`) {
					t.Errorf("%s is not listed: %s", tool, list)
				}
				if got := c.request(3+i, "tools/call",
					`{"name":"`+tool+`","arguments":{"a":1,"b":2}}`); !strings.Contains(got,
					`{"sum":3}`) {
					t.Errorf("%s: %s", tool, got)
				}
			}
			end(c)
			c.cmd.Wait()
			late := time.After(10 * time.Second)
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for over := false; !over && len(m.running("gateway.exe")) > 0; {
				select {
				case <-tick.C:
				case <-late:
					over = true
				}
			}
			for _, pid := range m.running("gateway.exe") {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("left: %q", line)
			}
		})
	}
	// cmd.exe's treatment of special characters is not tested, because Wine's differs. See
	// batchLine in internal/procgroup.
	text, err := os.ReadFile(filepath.Join(m.dir, "args.txt"))
	if err != nil || !strings.Contains(string(text), `"two words" "a|b>c^d" "plain"`) {
		t.Errorf("arguments: %q, %v", text, err)
	}
}
