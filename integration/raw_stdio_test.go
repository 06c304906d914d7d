//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A message is one JSON-RPC message with its original bytes. Its parts are slices of those
// bytes, not re-encoded.
type message struct {
	Raw     []byte          `json:"-"`
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

func parseMessage(raw []byte) (message, error) {
	m := message{Raw: raw}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, err
	}
	if m.JSONRPC != "2.0" {
		return m, fmt.Errorf("jsonrpc is %q", m.JSONRPC)
	}
	return m, nil
}

// code returns the code of the error, 0 without an error.
func (m message) code() int {
	var e struct{ Code int }
	json.Unmarshal(m.Error, &e)
	return e.Code
}

// A caller sends a request and waits for the response. params is JSON.
type caller interface {
	call(method, params string) message
}

// A rawClient is a client over stdio that knows the framing of JSON-RPC and nothing of MCP. It
// keeps every line that it receives.
type rawClient struct {
	t       testing.TB
	repeats bool // the test sends secrets that errors for it repeat
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  string // path of the file
	nextID  atomic.Int64
	exited  chan struct{}
	drained chan struct{} // closed at the end of stdout
	waitErr error

	mu      sync.Mutex
	lines   [][]byte
	arrived chan struct{} // closed and replaced with each line
}

// stderrFile returns a new file for the log of a gateway, which must not contain a secret.
func stderrFile(t testing.TB) *os.File {
	t.Helper()
	dir := t.TempDir()
	searchAtEnd(t, dir)
	f, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// startRaw starts cmd and reads its stdout to the end. When the test ends, the command must have
// exited, or exit once its stdin is closed.
func startRaw(t testing.TB, cmd *exec.Cmd) *rawClient {
	t.Helper()
	return startRawAs(t, cmd, nil)
}

// startRawAs is like startRaw, and runs the command as another user if who is not nil.
func startRawAs(t testing.TB, cmd *exec.Cmd, who *syscall.Credential) *rawClient {
	t.Helper()
	// Files instead of io.Writers: Wait must return when the process has exited, even if another
	// process still holds its pipes.
	errFile := stderrFile(t)
	defer errFile.Close()
	c := &rawClient{
		t: t, cmd: cmd, stderr: errFile.Name(),
		exited: make(chan struct{}), drained: make(chan struct{}), arrived: make(chan struct{}),
	}
	out, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer outW.Close()
	cmd.Stdout, cmd.Stderr = outW, errFile
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.waitErr = cmd.Wait(); close(c.exited) }()
	go c.read(out)
	t.Cleanup(c.waitForExit)
	return c
}

func (c *rawClient) read(out *os.File) {
	defer close(c.drained)
	defer out.Close()
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			c.mu.Lock()
			c.lines = append(c.lines, bytes.TrimRight(line, "\n"))
			close(c.arrived)
			c.arrived = make(chan struct{})
			c.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// waitForExit checks, at the end of the test, that the command exits and that no process holds
// its stdout.
func (c *rawClient) waitForExit() {
	c.stdin.Close()
	select {
	case <-c.exited:
	case <-time.After(20 * time.Second):
		c.t.Errorf("%s did not end within 20 s of end of file on its stdin",
			filepath.Base(c.cmd.Path))
	}
	syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // this group, or one that no longer exists
	<-c.exited
	select {
	case <-c.drained:
	case <-time.After(2 * time.Second):
		c.t.Errorf("%s has exited, but another process still holds its stdout",
			filepath.Base(c.cmd.Path))
	}
	for _, line := range c.received() {
		if m, err := parseMessage(line); err == nil && refusal(m) != "" && !c.repeats {
			searchText(c.t, "an error for a client", line)
		}
	}
	if c.t.Failed() {
		c.t.Logf("stderr of %s:\n%s", filepath.Base(c.cmd.Path), c.logs())
	}
}

// logs returns the last 16 KiB of stderr.
func (c *rawClient) logs() string {
	text, _ := os.ReadFile(c.stderr)
	if n := len(text) - 16<<10; n > 0 {
		text = text[n:]
	}
	return string(text)
}

// received returns all lines so far.
func (c *rawClient) received() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}

// send writes one line.
func (c *rawClient) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		c.t.Fatalf("write %.80s: %v", line, err)
	}
}

// notify sends a notification. params is JSON, or empty for none.
func (c *rawClient) notify(method, params string) {
	c.t.Helper()
	if params != "" {
		params = `,"params":` + params
	}
	c.send(`{"jsonrpc":"2.0","method":"` + method + `"` + params + `}`)
}

// sendRequest sends a request with this raw id.
func (c *rawClient) sendRequest(id, method, params string) {
	c.t.Helper()
	if params != "" {
		params = `,"params":` + params
	}
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"` + params + `}`)
}

var errGone = errors.New("stdout was closed")

// find waits for the first line that match accepts.
func (c *rawClient) find(within time.Duration, match func([]byte) bool) ([]byte, error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for seen := 0; ; {
		c.mu.Lock()
		lines, arrived := c.lines, c.arrived
		c.mu.Unlock()
		for ; seen < len(lines); seen++ {
			if match(lines[seen]) {
				return lines[seen], nil
			}
		}
		select {
		case <-arrived:
		case <-timer.C:
			return nil, fmt.Errorf("no match within %v", within)
		case <-c.drained:
			c.mu.Lock()
			more := len(c.lines) > seen
			c.mu.Unlock()
			if !more {
				return nil, errGone
			}
		}
	}
}

// await waits for the first message that match accepts, including those received before.
func (c *rawClient) await(what string, within time.Duration, match func(message) bool) message {
	c.t.Helper()
	line, err := c.find(within, func(line []byte) bool {
		m, err := parseMessage(line)
		return err == nil && match(m)
	})
	if err != nil {
		c.t.Fatalf("waiting for %s: %v; last line: %.300s", what, err, last(c.received()))
	}
	m, _ := parseMessage(line)
	return m
}

// awaitResponse waits for the response with this raw id.
func (c *rawClient) awaitResponse(id string, within time.Duration) message {
	c.t.Helper()
	return c.await("the response to "+id, within,
		func(m message) bool { return m.Method == "" && string(m.ID) == id })
}

// call sends a request with an id of its own and waits for the response.
func (c *rawClient) call(method, params string) message {
	c.t.Helper()
	id := itoa(c.nextID.Add(1) + 1000)
	c.sendRequest(id, method, params)
	return c.awaitResponse(id, waitTimeout)
}

// initialize does the handshake and returns the response to initialize.
func (c *rawClient) initialize(revision string) message {
	c.t.Helper()
	m := c.call("initialize", initializeParams(revision))
	if m.Result == nil {
		c.t.Fatalf("initialize: %s", m.Raw)
	}
	c.notify("notifications/initialized", "")
	return m
}

// finish closes stdin and returns the exit code.
func (c *rawClient) finish(within time.Duration) int {
	c.t.Helper()
	c.stdin.Close()
	return c.exitCode(within)
}

// exitCode waits for the exit and returns the code; -1 = ended by a signal.
func (c *rawClient) exitCode(within time.Duration) int {
	c.t.Helper()
	select {
	case <-c.exited:
	case <-time.After(within):
		c.t.Fatalf("%s did not end within %v", filepath.Base(c.cmd.Path), within)
	}
	return c.cmd.ProcessState.ExitCode()
}

// checkPure fails the test for each line on stdout that is not one JSON-RPC message.
func (c *rawClient) checkPure() {
	c.t.Helper()
	for _, line := range c.received() {
		if err := checkJSONRPC(line); err != nil {
			c.t.Errorf("stdout: %v: %.200q", err, line)
		}
	}
}

// checkJSONRPC returns an error if a line is not a JSON-RPC message or a batch of messages.
func checkJSONRPC(line []byte) error {
	if len(line) > 0 && line[0] == '[' {
		var batch []json.RawMessage
		if err := json.Unmarshal(line, &batch); err != nil {
			return err
		}
		for _, m := range batch {
			if err := checkJSONRPC(m); err != nil {
				return err
			}
		}
		return nil
	}
	m, err := parseMessage(line)
	switch {
	case err != nil:
		return err
	case m.Method == "" && (m.Result == nil) == (m.Error == nil):
		return errors.New("neither request nor response")
	case m.Method == "" && m.ID == nil:
		return errors.New("response without id")
	}
	return nil
}

func initializeParams(revision string) string {
	return `{"protocolVersion":"` + revision +
		`","capabilities":{},"clientInfo":{"name":"integration","version":"1.0"}}`
}

func last(lines [][]byte) []byte {
	if len(lines) == 0 {
		return nil
	}
	return lines[len(lines)-1]
}

// A tool is one entry of tools/list, with its bytes.
type tool struct {
	name string
	raw  json.RawMessage
}

// listTools lists all pages.
func listTools(t testing.TB, c caller) []tool {
	t.Helper()
	var tools []tool
	params := `{}`
	for page := 0; page < 100; page++ {
		m := c.call("tools/list", params)
		var list struct {
			Tools      []json.RawMessage
			NextCursor *string
		}
		if err := json.Unmarshal(m.Result, &list); err != nil || m.Result == nil {
			t.Fatalf("tools/list: %v: %.300s", err, m.Raw)
		}
		for _, raw := range list.Tools {
			var entry struct{ Name string }
			if err := json.Unmarshal(raw, &entry); err != nil {
				t.Fatalf("tools/list: %v in %s", err, raw)
			}
			tools = append(tools, tool{entry.Name, raw})
		}
		if list.NextCursor == nil {
			return tools
		}
		cursor, _ := json.Marshal(*list.NextCursor)
		params = `{"cursor":` + string(cursor) + `}`
	}
	t.Fatal("tools/list: more than a hundred pages")
	return nil
}

// names returns the names of tools, in order.
func names(tools []tool) []string {
	var list []string
	for _, tool := range tools {
		list = append(list, tool.name)
	}
	return list
}

// callTool calls a tool; arguments is JSON, or empty for none.
func callTool(c caller, name, arguments string) message {
	quoted, _ := json.Marshal(name)
	if arguments != "" {
		arguments = `,"arguments":` + arguments
	}
	return c.call("tools/call", `{"name":`+string(quoted)+arguments+`}`)
}
