//go:build unix

package backends

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest"
)

// scriptBackend returns a backend that is a shell script: it responds to the handshake, and to
// tools/list with the output of list.
func scriptBackend(list string) config.Backend {
	return config.Backend{
		Name: "s", Command: "sh", Enabled: true, StartTimeout: time.Minute, Generation: "legacy",
		Args: []string{"-c", `read -r l; printf '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}\n'
			read -r l; read -r l; ` + list + `; cat >/dev/null`},
	}
}

// startAll starts backends, which run until the end of the test, and waits until each has settled.
func startAll(t *testing.T, all ...config.Backend) *Set {
	t.Helper()
	s := New(Options{Backends: all, MaxMessage: 8 << 20, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, nil) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	s.Start()
	late := time.After(20 * time.Second)
	for v := s.View(); !v.Complete; v = s.View() {
		select {
		case <-v.Changed:
		case <-late:
			t.Fatal("not all backends are settled")
		}
	}
	return s
}

// FRAME-05: a list far larger than the buffer of a pipe arrives, even if it is written in pieces.
func TestFRAME05_LargeListInPieces(t *testing.T) {
	var tools []string
	for i := range 300 {
		tools = append(tools,
			fmt.Sprintf(`{"name":"t%d","description":"%s","inputSchema":{"type":"object"}}`, i,
				strings.Repeat("x", 5000)))
	}
	file := filepath.Join(t.TempDir(), "list")
	text := `{"jsonrpc":"2.0","id":2,"result":{"tools":[` + strings.Join(tools, ",") + "]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startAll(t, scriptBackend("dd if='"+file+"' bs=4096 2>/dev/null"))
	if n := len(s.View().Entries(catalog.Tools)); n != 300 {
		t.Errorf("%d tools, %v", n, s.Status())
	}
}

// The status has the ids of the processes of a backend until they end.
func TestStatus_PIDs(t *testing.T) {
	const list = `printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"%d","inputSchema":{"type":"object"}}]}}\n' $$`
	s := startAll(t, scriptBackend(list))
	st := s.Status()[0]
	if name := s.View().Entries(catalog.Tools)[0].Exposed; len(st.PIDs) != 1 ||
		strconv.Itoa(st.PIDs[0]) != name {
		t.Errorf("processes %v, want %s", st.PIDs, name)
	}
	if err := NewControl(s).Stop(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	if st = s.Status()[0]; len(st.PIDs) != 0 || st.State != StoppedByUser {
		t.Errorf("after the stop: %s %v", st.State, st.PIDs)
	}
}

// FRAME-05: nothing is left of a child that was not ready in time.
func TestFRAME05_StartTimeoutLeavesNoChild(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pid")
	b := config.Backend{
		Name: "s", Command: "sh", Enabled: true, StartTimeout: 200 * time.Millisecond,
		Args: []string{"-c", "trap '' TERM; echo $$ > '" + file +
			"'; while :; do sleep 0.05; done"},
	}
	s := New(Options{Backends: []config.Backend{b}, MaxMessage: 1 << 20, NoRestart: true,
		Log: slog.New(slog.DiscardHandler)})
	end := runUntilSettled(s)
	if err := s.Status()[0].Err; err == nil || !strings.Contains(err.Error(), "start_timeout") {
		t.Errorf("the backend failed with %v", err)
	}
	end() // nothing is left after end has returned
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || syscall.Kill(pid, 0) == nil {
		t.Errorf("process %d is still running: %v", pid, err)
	}
}

// CONFIG-04, CONFIG-05: a child runs in its configured cwd, or else in the gateway's. A cwd that
// does not exist affects only that backend.
func TestCONFIG04_CONFIG05_ChildDirectory(t *testing.T) {
	const list = `printf '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"pwd","description":"%s","inputSchema":{"type":"object"}}]}}\n' "$(pwd -P)"`
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	here, there, nowhere := scriptBackend(list), scriptBackend(list), scriptBackend(list)
	here.Name, there.Name, nowhere.Name = "here", "there", "nowhere"
	there.Cwd, nowhere.Cwd = dir, filepath.Join(dir, "missing")
	s := startAll(t, here, there, nowhere)
	places := make(map[string]string)
	for _, e := range s.View().Entries(catalog.Tools) {
		places[e.Backend] = e.Item.Description()
	}
	if len(places) != 2 || places["here"] != ours || places["there"] != dir {
		t.Errorf("the children run in %v", places)
	}
	if err := s.Status()[2].Err; err == nil || !strings.Contains(err.Error(),
		"is not a directory") {
		t.Errorf("the backend without a directory failed with %v", err)
	}
}

// The error of a program that is not a server contains its output, from stdout or stderr, as soon
// as there is output, because gateway check does not wait longer.
func TestOutputOfOtherProgramsIsInError(t *testing.T) {
	const asked = "read -r l; "
	for script, want := range map[string]string{
		"echo hello world": `it ended (exit 0) without speaking MCP; its output: "hello world"`,
		asked +
			"echo hello world; exit 3": `it ended (exit 3) without speaking MCP; its output: "hello world"`,
		"echo Welcome; echo no license; exit 1": `it ended (exit 1) without speaking MCP; its output: "no license"`,
		"echo token=hunter22; exit 1":           `it ended (exit 1) without speaking MCP; its output: "token=***"`,
		"echo a; echo b >&2; exit 1":            `exit 1; its last words: b; it also wrote output that is not MCP: "a"`,
		"exit 4":                                `exit 4`,
		"exec cat":                              errEcho.Error(),
		"exec printf '%0300d'":                  `it ended (exit 0) without speaking MCP; its output: "` + strings.Repeat("0", 200) + `"`,
		asked +
			"echo hello; exec sleep 60": `it was not ready within 1s (start_timeout); it also wrote output that is not MCP: "hello"`,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			for _, generation := range []string{"auto", "legacy"} {
				s := New(Options{
					Backends: []config.Backend{{Name: "s", Command: "sh",
						Args: []string{"-c", script}, Enabled: true, StartTimeout: time.Minute,
						Generation: config.GenerationSetting(generation)}},
					MaxMessage: 1 << 20, NoRestart: true, Log: slog.New(slog.DiscardHandler),
					Mask: strings.NewReplacer("hunter22", "***").Replace,
				})
				want := want
				if strings.Contains(want, "start_timeout") {
					s.current().all[0].cfg.StartTimeout = time.Second
					if generation == "auto" {
						want = strings.Replace(want, "(start_timeout)",
							"(start_timeout) (it was sent server/discover first and did not respond; "+
								"if it hangs on unknown requests, set `era: legacy`)", 1)
					}
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error)
				go func() { done <- s.Run(ctx, nil) }()
				s.Start()
				for v := s.View(); !v.Complete; v = s.View() {
					<-v.Changed
				}
				if err := s.Status()[0].Err; err == nil || err.Error() != want {
					t.Errorf("%s: it failed with %v, want %s", generation, err, want)
				}
				cancel()
				<-done
			}
		})
	}
}

// At level debug the log contains the process of a backend and its command, without the secrets
// in it.
func TestProcessStartIsLogged(t *testing.T) {
	t.Parallel()
	log, logger := mcptest.NewLog()
	b := config.Backend{Name: "s", Command: "sh", Enabled: true,
		Args: []string{"-c", "exit 0", "--token=k3y-of-the-backend", "k3y-of-the-backend",
			"--password", "sh", strings.Repeat("x", 2*maxLoggedCommand)}}
	s := New(Options{
		Backends: []config.Backend{b}, MaxMessage: 1 << 20, NoRestart: true, Log: logger,
		Mask: func(
			text string) string {
			return strings.ReplaceAll(text, "k3y-of-the-backend", "***")
		},
	})
	runUntilSettled(s)()
	lines := log.Lines("level=DEBUG", "backend=s", "started process",
		"text=\"sh -c exit 0 --token=*** *** --password *** xxx", "x…")
	if len(lines) == 0 || len(lines[0]) > maxLoggedCommand+200 ||
		len(log.Lines("k3y-of-the-backend")) > 0 {
		t.Errorf("logged %q", log.Lines(""))
	}
}
