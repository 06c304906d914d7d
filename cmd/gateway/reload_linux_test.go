package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	helloLines = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	listLine = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n"
)

// awaitLog waits until the log contains a text the given number of times, and returns the log.
func (c *client) awaitLog(text string, times int) string {
	c.t.Helper()
	end := time.Now().Add(40 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		log, err := os.ReadFile(c.stderr.Name())
		if err != nil {
			c.t.Fatal(err)
		}
		if strings.Count(string(log), text) >= times {
			return string(log)
		}
		if time.Now().After(end) {
			c.t.Fatalf("the log does not have %q %d times:\n%s", text, times, log)
		}
		<-tick.C
	}
}

// awaitMessage reads messages of the gateway until one contains a text.
func (c *client) awaitMessage(out *bufio.Reader, text string) string {
	c.t.Helper()
	_ = c.out.SetReadDeadline(time.Now().Add(40 * time.Second))
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: %v", text, err)
		}
		if strings.Contains(line, text) {
			return line
		}
	}
}

// emptyHome creates a working directory and a home directory without a configuration.
func emptyHome(t *testing.T) (work, home string) {
	t.Helper()
	work, home = t.TempDir(), t.TempDir()
	t.Chdir(work)
	t.Setenv("HOME", home)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "GATEWAY_CONFIG", "GATEWAY_STATE"} {
		t.Setenv(name, "")
	}
	return work, home
}

const oneDemo = "backends: [{name: later, embedded: demo}]\ncatalog: {prefix: always}\n"

// A gateway without a configuration loads the user's file when it is written, in directories
// that did not exist, and notifies its client. Errors in the file are logged once.
func TestUserFileIsLoadedWhenCreated(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	_, home := emptyHome(t)
	c := runPiped(t, nil)
	out := bufio.NewReader(c.out)
	_, _ = io.WriteString(c.in, helloLines+listLine)
	if list := c.awaitMessage(out, `"id":2`); strings.Contains(list, "later__") {
		t.Fatal(list)
	}
	file := filepath.Join(home, ".config", "mcp-gateway", "config.yaml")
	c.awaitLog("a file that is written later is loaded", 1)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("backend: []\n")
	c.awaitLog("keeping the embedded demo backend until the file is corrected", 1)
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	write("backend: []\n") // the same mistake
	c.awaitLog("keeping the embedded demo backend until the file is corrected", 1)
	write(oneDemo)
	c.awaitMessage(out, "notifications/tools/list_changed")
	_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`+"\n")
	if list := c.awaitMessage(out, `"id":4`); !strings.Contains(list, `"later__`) {
		t.Error(list)
	}
	log := c.awaitLog("configuration reloaded", 1)
	if n := strings.Count(log, "until the file is corrected"); n != 1 {
		t.Errorf("the errors were logged %d times:\n%s", n, log)
	}

	// The file is now in force. It may be removed and written again.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c.awaitLog("configuration file missing: keeping the previous configuration", 1)
	write(oneDemo)
	c.awaitLog("configuration corrected, otherwise unchanged", 1)
	write(strings.Replace(oneDemo, "later", "back", 1))
	c.awaitLog("configuration reloaded", 2)
	_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":5,"method":"tools/list"}`+"\n")
	if list := c.awaitMessage(out, `"id":5`); !strings.Contains(list, `"back__`) ||
		strings.Contains(list, `"later__`) {
		t.Error(list)
	}
	c.in.Close()
	if code, _, stderr := c.output(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// A gateway.yaml that is written to the working directory is loaded when it is approved. A
// missing approval is logged once. A file of another program is skipped with a warning.
func TestLocalFileIsLoadedWhenApproved(t *testing.T) {
	work, _ := emptyHome(t)
	c := runPiped(t, nil)
	out := bufio.NewReader(c.out)
	_, _ = io.WriteString(c.in, helloLines+listLine)
	c.awaitMessage(out, `"id":2`)
	file := filepath.Join(work, "gateway.yaml")
	if err := os.WriteFile(file, []byte("routes: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitLog("the file is not used: it has no top-level key", 1)
	if err := os.WriteFile(file, []byte(oneDemo), 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitLog("is not approved with this content", 1)
	for range 2 {
		if err := os.Chtimes(file, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := runPiped(t, nil, "trust", file).output(); code != exitOK {
		t.Fatal(stderr)
	}
	log := c.awaitLog("configuration reloaded", 1)
	if n := strings.Count(log, "is not approved with this content"); n != 1 {
		t.Errorf("the missing approval was logged %d times:\n%s", n, log)
	}
	_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":4,"method":"tools/list"}`+"\n")
	if list := c.awaitMessage(out, `"id":4`); !strings.Contains(list, `"later__`) {
		t.Error(list)
	}
	c.in.Close()
	if code, _, stderr := c.output(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}
