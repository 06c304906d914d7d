//go:build unix

package faults_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/mcptest/faults"
)

// stubEnv makes this test binary run the stub, because some faults end the process.
const stubEnv = "FAULTS_TEST_BE_STUB"

func TestMain(m *testing.M) {
	if os.Getenv(stubEnv) != "" {
		os.Exit(faults.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const waitTimeout = 20 * time.Second

// A stubProcess is a running stub process.
type stubProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string // lines of stdout; closed at the end
	stderr bytes.Buffer
	ended  bool
}

func start(t *testing.T, script string) *stubProcess {
	t.Helper()
	p := &stubProcess{t: t, cmd: exec.Command(os.Args[0], "-script", script),
		lines: make(chan string, 10000)}
	p.cmd.Env = append(os.Environ(), stubEnv+"=1")
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = 100 * time.Millisecond // a grandchild may keep stderr open
	p.stdin, _ = p.cmd.StdinPipe()
	// Unlike with StdoutPipe, Wait does not wait for a grandchild that keeps the pipe open.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		defer close(p.lines)
		for out := bufio.NewReader(r); ; {
			line, err := out.ReadString('\n')
			if line != "" {
				p.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if !p.ended {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
		r.Close()
	})
	return p
}

func (p *stubProcess) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

// receive returns the next line including the newline; "" at the end of stdout.
func (p *stubProcess) receive() string {
	p.t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(waitTimeout):
		p.t.Fatalf("no output; stderr: %s", &p.stderr)
		return ""
	}
}

// wait waits for the process and returns its exit state.
func (p *stubProcess) wait() string {
	p.t.Helper()
	p.ended = true
	kill := time.AfterFunc(waitTimeout, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.cmd.Wait()
	return p.cmd.ProcessState.String()
}

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	list        = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	lastPing    = `{"jsonrpc":"2.0","id":"end","method":"ping"}`
)

func do(id int, arguments string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"do","arguments":%s,"_meta":{"progressToken":"tok"}}}`, id, arguments)
}

func TestEchoIsVerbatim(t *testing.T) {
	p := start(t, `{"name":"s7"}`)
	const args = `{ "b":9007199254740993, "a" : "<é\u2028>\ud83d\ude00" , "b2":1e400 }`
	p.send(initialize)
	if got := p.receive(); !strings.Contains(got, `"serverInfo":{"name":"s7"`) ||
		!strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
		t.Error(got)
	}
	p.send(initialized, list)
	if got := p.receive(); !strings.Contains(got, `"name":"echo"`) ||
		!strings.Contains(got, `"name":"slow"`) || !strings.Contains(got, `"name":"do"`) {
		t.Error(got)
	}
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":` +
		args + `}}`)
	want := fmt.Sprintf(`"structuredContent":{"stub":"s7","pid":%d,"got":%s}}}`, p.cmd.Process.Pid,
		args)
	if got := p.receive(); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	p.stdin.Close()
	if got := p.wait(); got != "exit status 0" {
		t.Error(got)
	}
}

// For a call with one fault and a ping after it, the stub writes lines that match the patterns in
// want, and then the response to the ping.
func TestFaultOutput(t *testing.T) {
	const answer = `^{"jsonrpc":"2.0","id":5,"result":{.*"got":{"fault".*}}}\n$`
	for name, c := range map[string]struct {
		fault string
		want  []string
	}{
		"noise before": {`{"fault":"noise","times":2}`,
			[]string{"^✓ server ready.*\n$", "^✓ server ready.*\n$", answer}},
		"noise after": {`{"fault":"noise","where":"after","text":"bye"}`,
			[]string{answer, "^bye\n$"}},
		"noise between": {`{"fault":"noise","where":"between","text":"oops\n"}`,
			[]string{`^{"jsonrpc":"2.0","id":5.*oops\n$`, `}}}\n$`}},
		"chunks":        {`{"fault":"chunks","bytes":7,"for":"10us"}`, []string{answer}},
		"delay":         {`{"fault":"delay","for":"5ms"}`, []string{answer}},
		"huge":          {`{"fault":"huge","bytes":100000}`, []string{`"pad":"x{500,1000}`}},
		"invalid UTF-8": {`{"fault":"utf8"}`, []string{`"bad":"\x{b0}\x{a1}"`}},
		"not JSON":      {`{"fault":"junk"}`, []string{"^this is no JSON\n$"}},
		"silent":        {`{"fault":"silent"}`, nil},
		"error":         {`{"fault":"error","code":-7}`, []string{`"id":5,"error":{"code":-7`}},
		"unknown id": {`{"fault":"id","how":"unknown"}`,
			[]string{`"id":987654321987,"result"`}},
		"id as a string": {`{"fault":"id","how":"string"}`, []string{`"id":"5","result"`}},
		"null id":        {`{"fault":"id","how":"null"}`, []string{`"id":null,"result"`}},
		"twice":          {`{"fault":"id","how":"twice"}`, []string{answer, answer}},
		"logs": {`{"fault":"notify","text":"mine","times":2}`,
			[]string{`notifications/message.*"mine"`, `notifications/message.*"mine"`, answer}},
		"progress": {`{"fault":"notify","what":"progress"}`,
			[]string{`"progressToken":"tok"`, answer}},
		"list_changed": {`{"fault":"notify","what":"list_changed"}`,
			[]string{`tools/list_changed`, answer}},
		"unknown method": {`{"fault":"notify","what":"window/logMessage"}`,
			[]string{`"method":"window/logMessage"`, answer}},
		"unknown fault": {`{"fault":"nonsense"}`, []string{`"id":5,"error".*unknown fault`}},
		"two faults": {`{"fault":"noise","deeds":[{"fault":"id","how":"twice"}]}`,
			[]string{"^✓", answer, answer}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, `{}`)
			p.send(do(5, c.fault))
			var got []string
			for range c.want {
				got = append(got, p.receive())
			}
			p.send(lastPing)
			if line := p.receive(); !strings.Contains(line, `"id":"end"`) {
				t.Errorf("unexpected line: %.300s", line)
			}
			for i, want := range c.want {
				pattern := regexp.MustCompile(want)
				if !pattern.MatchString(latin1(got[i])) && !pattern.MatchString(got[i]) {
					t.Errorf("line %d: %.300s\nwant %s", i, got[i], want)
				}
			}
		})
	}
}

// latin1 maps each byte to the character with its number, so that a pattern can match any byte.
func latin1(s string) string {
	runes := make([]rune, 0, len(s))
	for _, b := range []byte(s) {
		runes = append(runes, rune(b))
	}
	return string(runes)
}

func TestDie(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		say    []string
		lines  int  // complete lines before the end
		half   bool // half a line follows
		end    string
	}{
		"at the start": {`{"on":{"start":[{"fault":"die","code":3}]}}`, nil, 0, false,
			"exit status 3"},
		"killed at the start": {`{"on":{"start":[{"fault":"die","by":"kill"}]}}`, nil, 0, false,
			"signal: killed"},
		"at initialize": {`{"on":{"initialize":[{"fault":"die","code":1}]}}`,
			[]string{initialize}, 0, false, "exit status 1"},
		"after initialize": {`{"on":{"initialize":[{"fault":"die","at":"after","code":1}]}}`,
			[]string{initialize}, 1, false, "exit status 1"},
		"at initialized": {`{"on":{"notifications/initialized":[{"fault":"die","code":1}]}}`,
			[]string{initialize, initialized}, 1, false, "exit status 1"},
		"at the list": {`{"on":{"tools/list":[{"fault":"die","code":1}]}}`,
			[]string{initialize, initialized, list}, 1, false, "exit status 1"},
		"in the list": {`{"on":{"tools/list":[{"fault":"die","at":"middle","code":1}]}}`,
			[]string{initialize, initialized, list}, 1, true, "exit status 1"},
		"at the second list": {`{"on":{"tools/list":[{"fault":"die","skip":1}]}}`,
			[]string{list, list}, 1, false, "exit status 0"},
		"reading a call": {`{}`,
			[]string{do(5,
				`{"fault":"die","at":"reading","by":"kill"}`)}, 0, false, "signal: killed"},
		"before the answer": {`{}`, []string{do(5, `{"fault":"die","at":"before","code":4}`)},
			0, false, "exit status 4"},
		"in the answer": {`{}`,
			[]string{do(5,
				`{"fault":"die","at":"middle","by":"kill"}`)}, 0, true, "signal: killed"},
		"in an answer, slowly": {`{}`,
			[]string{do(5,
				`{"fault":"die","at":"middle","deeds":[{"fault":"chunks","bytes":9}]}`)}, 0, true,
			"exit status 0"},
		"after the answer": {`{}`, []string{do(5, `{"fault":"die","at":"after","code":5}`)}, 1,
			false, "exit status 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, c.script)
			for i, line := range c.say {
				p.send(line)
				if i < c.lines {
					if got := p.receive(); !strings.HasSuffix(got, "}\n") {
						t.Errorf("line %d: %q", i, got)
					}
				}
			}
			if got := p.receive(); c.half != (got != "" && !strings.HasSuffix(got, "\n")) ||
				!c.half && got != "" {
				t.Errorf("last output %q", got)
			}
			if got := p.wait(); got != c.end {
				t.Errorf("exit state %s, want %s", got, c.end)
			}
		})
	}
}

func TestDieOnce(t *testing.T) {
	script := fmt.Sprintf(`{"on":{"start":[{"fault":"die","code":3,"once":%q}]}}`,
		filepath.Join(t.TempDir(), "died"))
	if got := start(t, script).wait(); got != "exit status 3" {
		t.Error(got)
	}
	p := start(t, script)
	p.send(initialize)
	p.receive()
}

func TestDeaf(t *testing.T) {
	p := start(t, `{"on":{"start":[{"fault":"deaf"}]}}`)
	wrote := make(chan error, 1)
	go func() {
		// More than the capacity of a pipe.
		_, err := io.WriteString(p.stdin, strings.Repeat(lastPing+"\n", 20000))
		wrote <- err
	}()
	select {
	case line := <-p.lines:
		t.Errorf("unexpected response: %s", line)
	case err := <-wrote:
		t.Errorf("all input was read: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestMute(t *testing.T) {
	p := start(t, `{}`)
	p.send(do(5, `{"fault":"mute","for":"50ms"}`), lastPing)
	deadline := time.Now().Add(waitTimeout)
	for time.Now().Before(deadline) {
		p.send(list)
		select {
		case line := <-p.lines:
			if !strings.Contains(line, `"id":1,`) {
				t.Errorf("unexpected output %s", line)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the stub is still mute")
}

func TestStderr(t *testing.T) {
	p := start(t, `{}`)
	p.send(do(5, `{"fault":"stderr","bytes":300000}`))
	p.receive()
	p.stdin.Close()
	p.wait()
	if n := p.stderr.Len(); n != 300000 {
		t.Errorf("%d bytes of stderr", n)
	}
}

func TestStubborn(t *testing.T) {
	p := start(t, `{"stubborn":true}`)
	p.send(initialize)
	p.receive()
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.send(list)
	p.receive()
	p.stdin.Close()
	select {
	case line, more := <-p.lines:
		t.Errorf("stdout: %q, %v", line, more)
	case <-time.After(100 * time.Millisecond):
	}
	p.cmd.Process.Kill()
	if got := p.wait(); got != "signal: killed" {
		t.Error(got)
	}
}

// A grandchild keeps stdout open after its parent has exited; the test detects the grandchild by
// that.
func TestFork(t *testing.T) {
	for _, how := range []string{"normal", "stubborn", "setsid"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := start(t, `{}`)
			p.send(do(5, `{"fault":"fork","how":"`+how+`"}`))
			p.receive()
			var pid int
			all := threads(t, p.cmd.Process.Pid)
			if all == nil {
				t.Log("threads are listed on Linux only")
				return
			}
			for _, thread := range all {
				children, _ := os.ReadFile(filepath.Join(thread, "children"))
				fmt.Sscan(string(children), &pid)
				if pid != 0 {
					break
				}
			}
			if pid == 0 {
				t.Fatal("no child process")
			}
			group, err := syscall.Getpgid(pid)
			if own := group == pid; err != nil || own != (how == "setsid") {
				t.Errorf("group %d of %d: %v", group, pid, err)
			}
			p.stdin.Close()
			p.wait()
			grandchild, _ := os.FindProcess(pid)
			grandchild.Kill()
			if got := p.receive(); got != "" {
				t.Errorf("stdout: %q", got)
			}
		})
	}
}

func threads(t *testing.T, pid int) []string {
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestEndlessPages(t *testing.T) {
	page := func(p *stubProcess, cursor string) string {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"` + cursor +
			`"}}`)
		return p.receive()
	}
	p := start(t, `{"pages":"endless","page":3}`)
	if got := page(p, "3000"); !strings.Contains(got, `"more_3002"`) ||
		!strings.Contains(got, `"nextCursor":"3003"`) {
		t.Error(got)
	}
	p = start(t, `{"pages":"circle","page":2}`)
	if got := page(p, ""); !strings.Contains(got, `"nextCursor":"2"`) {
		t.Error(got)
	}
	if got := page(p, "2"); !strings.Contains(got, `"nextCursor":"0"`) {
		t.Error(got)
	}
}

func TestUnknownMethods(t *testing.T) {
	p := start(t, `{"capabilities":{"tools":{},"prompts":{}},"refuses":["tools/list"]}`)
	p.send(initialize)
	if got := p.receive(); !strings.Contains(got, `"capabilities":{"tools":{},"prompts":{}}`) {
		t.Error(got)
	}
	p.send(list)
	if got := p.receive(); !strings.Contains(got, `-32601`) {
		t.Error(got)
	}
}

func TestAsk(t *testing.T) {
	p := start(t, `{}`)
	p.send(do(5, `{"fault":"ask","what":"sampling/createMessage","text":"{\"messages\":[]}"}`))
	if got := p.receive(); !strings.Contains(got,
		`"id":1,"method":"sampling/createMessage","params":{"messages":[]}`) {
		t.Error(got)
	}
	p.send(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`)
	if got := p.receive(); !strings.Contains(got, `"reply":{"jsonrpc":"2.0","id":1,"error"`) {
		t.Error(got)
	}
}

func TestOtherID(t *testing.T) {
	p := start(t, `{}`)
	p.send(
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`, do(5, `{"fault":"id","how":"other"}`))
	if got := p.receive(); !strings.Contains(got, `"id":8,`) || !strings.Contains(got, `"fault"`) {
		t.Error(got)
	}
}

func TestSlow(t *testing.T) {
	p := start(t, `{}`)
	p.send(
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"slow","arguments":{"ms":20,"steps":2},"_meta":{"progressToken":7}}}`)
	for _, want := range []string{`"progressToken":7,"progress":1`,
		`"progressToken":7,"progress":2`, `"got":{"ms":20`} {
		if got := p.receive(); !strings.Contains(got, want) {
			t.Errorf("%s: want %s", got, want)
		}
	}
	p.send(
		`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"slow","arguments":{"ms":60000}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`, lastPing)
	if got := p.receive(); !strings.Contains(got, `"id":"end"`) {
		t.Error(got)
	}
	p.stdin.Close()
	if got := p.wait(); got != "exit status 0" {
		t.Error(got)
	}
}

func TestModernStub(t *testing.T) {
	p := start(t, `{"era":"modern"}`)
	p.send(initialize)
	if got := p.receive(); !strings.Contains(got, "-32601") {
		t.Error(got)
	}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	p.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`)
	if got := p.receive(); !strings.Contains(got, `"supportedVersions":["2026-07-28"]`) {
		t.Error(got)
	}
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{},` +
		meta + `}}`)
	if got := p.receive(); !strings.Contains(got, `"result":{"resultType":"complete"`) {
		t.Error(got)
	}
}

func TestParseScript(t *testing.T) {
	for _, bad := range []string{`{"nonsense":1}`, `{"on":{"start":[{"fault":"dye"}]}}`,
		`{"on":{"start":[{"fault":"delay","for":5}]}}`, `@/no/such/file`} {
		if _, err := faults.ParseScript(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	s, err := faults.ParseScript(`{"name":"a","on":{"start":[{"fault":"delay","for":"20ms"}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := faults.ParseScript(s.String()); err != nil || again.String() != s.String() {
		t.Errorf("%v: %s", err, s)
	}
}
