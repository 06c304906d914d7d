package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A client is connected with pipes to a gateway that runs in this process.
type client struct {
	t      *testing.T
	in     *os.File // the client writes
	out    *os.File // the client reads
	stderr *os.File
	code   chan int
}

// runPiped runs a command line with pipes as stdin and stdout, as a client does.
func runPiped(t *testing.T, say []string, args ...string) *client {
	t.Helper()
	in, theirIn := pipe(t)
	theirOut, out := pipe(t)
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(theirIn, strings.Join(append(say, ""), "\n")); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, in: theirIn, out: theirOut, stderr: stderr, code: make(chan int, 1)}
	go func() {
		c.code <- run(t.Context(), args, stdio{in, out, stderr})
		in.Close()
		out.Close()
	}()
	t.Cleanup(func() { stderr.Close() })
	return c
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// output returns the exit code, stdout and stderr.
func (c *client) output() (code int, out, stderr string) {
	c.t.Helper()
	code = <-c.code
	text, err := io.ReadAll(c.out)
	if err != nil {
		c.t.Fatal(err)
	}
	errText, err := os.ReadFile(c.stderr.Name())
	if err != nil {
		c.t.Fatal(err)
	}
	return code, string(text), string(errText)
}

// end returns the exit code, the error responses, and stderr.
func (c *client) end() (code int, answers []string, stderr string) {
	c.t.Helper()
	code, out, stderr := c.output()
	for line := range strings.Lines(out) {
		var m struct {
			ID    json.RawMessage
			Error struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Error.Code != -32600 {
			c.t.Errorf("answer %s: %v", line, err)
		}
		answers = append(answers, string(m.ID)+" "+m.Error.Message)
	}
	return code, answers, stderr
}

// file writes a configuration and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	discover   = `{"jsonrpc":"2.0","id":"probe","method":"server/discover"}`
	initialize = `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}`
)

// Clients show "Connection closed" instead of stderr. Therefore the startup error is the response
// to their first request.
func TestStartupErrorIsSentToClient(t *testing.T) {
	t.Parallel()
	bad := file(t, "bad.yaml", "backends:\n  - {name: a, comand: x}\n  - {name: b, command: \"${NOT_SET_ANYWHERE}\"}\n")
	for name, args := range map[string][]string{
		"the configuration": {"-c", bad},
		"serve":             {"serve", "-c", bad},
		"no such file":      {"-c", bad + ".yaml"},
		"a flag":            {"serve", "--nonsense"},
		"where to listen":   {"-c", file(t, "good.yaml", ""), "--listen", "127.0.0.1:99999", "--stdio"},
		"the audit file":    {"-c", file(t, "audit.yaml", "audit: { file: /dev/null/x }\nbackends: [{name: demo, embedded: demo}]")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			say := []string{
				discover, `{"jsonrpc":"2.0","method":"notifications/x"}`, "noise", initialize,
			}
			c := runPiped(t, say, args...) // and stdin stays open
			code, answers, stderr := c.end()
			if code == 0 || len(answers) != 2 {
				t.Fatalf("exit code %d, answers %q", code, answers)
			}
			errText := strings.TrimSpace(strings.ReplaceAll("\n"+stderr, "\ngateway: ", "\n"))
			if errText == "" || answers[0] != `"probe" `+errText || answers[1] != "7 "+errText {
				t.Errorf("answers %q, stderr %q", answers, stderr)
			}
		})
	}
}

// A client that has sent only server/discover disconnects by itself.
func TestStartupErrorUntilStdinEnds(t *testing.T) {
	t.Parallel()
	c := runPiped(t, []string{discover}, "-c", file(t, "bad.yaml", "nonsense: 1"))
	c.in.Close()
	if code, answers, _ := c.end(); code != exitUsage || len(answers) != 1 {
		t.Errorf("exit code %d, answers %q", code, answers)
	}
}

// Commands other than serve do not read stdin, and responses are masked.
func TestStartupErrorOnlyFromServe(t *testing.T) {
	t.Parallel()
	bad := file(t, "bad.yaml", "backends: [{name: a, url: 'https://u:hunter22@x.example/y?key=hunter22', nonsense: 1, \"https://u:hunter22@x.example/\": 2}]")
	for _, verb := range []string{"check", "tools", "call"} {
		c := runPiped(t, []string{initialize}, verb, "-c", bad, "x")
		if code, answers, stderr := c.end(); code != exitUsage || len(answers) != 0 ||
			stderr == "" {
			t.Errorf("%s: exit code %d, answers %q, stderr %q", verb, code, answers, stderr)
		}
	}
	c := runPiped(t, []string{initialize}, "-c", bad)
	if _, answers, _ := c.end(); len(answers) != 1 || strings.Contains(answers[0], "hunter22") {
		t.Errorf("answers %q", answers)
	}
}

// The error text for the client is limited.
func TestStartupErrorIsTruncated(t *testing.T) {
	t.Parallel()
	keys := ""
	for i := range 400 {
		keys += fmt.Sprintf("nonsense%d: 1\n", i)
	}
	c := runPiped(t, []string{initialize}, "-c", file(t, "bad.yaml", keys))
	if _, answers, stderr := c.end(); len(answers) != 1 || len(answers[0]) > 4<<10+10 ||
		len(stderr) < 8<<10 ||
		!strings.HasSuffix(answers[0], "…") {
		t.Errorf("answers %q", answers)
	}
}
