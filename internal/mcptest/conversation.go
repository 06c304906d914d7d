package mcptest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A conversation is a txtar file: a description, then a script for each participant.
//
//	Description of the case.
//	-- config --
//	prefix: always
//	gh.call_timeout: 2s
//	-- client --
//	hello 2025-06-18
//	→ {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search"}}
//	← {"jsonrpc":"2.0","id":7,"result":{}}
//	-- backend gh --
//	listing {"tools":[{"name":"search","inputSchema":{"type":"object"}}]}
//	→ {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"search"}}
//	← {"jsonrpc":"2.0","id":3,"result":{}}
//	-- audit --
//	id=7 …
//	-- log --
//	level=WARN …
//
// In every section, → is a message towards the backends, and ← is a message towards the client.
//
// The script of the client determines the order of events. Its steps are →, "wait 2s", "hello
// REVISION [CAPABILITIES]" and "end" (the client closes its sending side). After each step the test
// waits until all goroutines are blocked. The messages that the client has received by then must be
// equal, byte for byte, to the ← lines after the step. Time is virtual and advances only in a wait.
// If a script has no "end", the client closes its sending side after the last line.
//
// The script of a backend runs concurrently: → is the next message that the backend must receive, ←
// is a message that it sends, and wait lets time pass. "hello RESULT" is a handshake with the
// result RESULT (or [InitializeResult]); "listing RESULT" is a handshake followed by a tools/list
// with the result RESULT. "exit STATUS" ends the process; the following lines belong to the next
// process. "refuse REASON", in place of a process, makes a dial fail. Processes after the last
// scripted one do not respond.
//
// The optional sections audit and log contain the audit records, and the warnings and errors of
// the log. With -update the expected messages are replaced by the actual ones.
type conversation struct {
	path     string
	archive  *txtar.Archive
	config   map[string]string
	client   []scriptLine
	backends []*scriptedBackend
}

var update = flag.Bool("update", false, "rewrite the expected messages of conversations")

// A GatewaySetup configures the gateway of a conversation.
type GatewaySetup struct {
	Config     map[string]string
	Backends   []string // names, in order
	Dial       func(backend string) (transport.Conn, error)
	Log, Audit *slog.Logger
}

// A StartGateway starts a gateway and returns its Serve method. The started goroutines end with the
// test.
type StartGateway func(*testing.T, GatewaySetup) func(context.Context, transport.Conn) error

// RunConversations runs each conversation in a directory as a subtest, in a synctest bubble of
// its own.
func RunConversations(t *testing.T, dir string, open StartGateway) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no conversations in %s: %v", dir, errors.Join(err, fs.ErrNotExist))
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			c, err := loadConversation(path)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { c.run(t, open) })
			if *update && !t.Failed() {
				if err := c.save(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func loadConversation(path string) (*conversation, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &conversation{path: path, archive: txtar.Parse(text)}
	for _, f := range c.archive.Files {
		name, isBackend := strings.CutPrefix(f.Name, "backend ")
		switch {
		case f.Name == "config":
			c.config, err = parseConfig(string(f.Data))
		case f.Name == "client":
			c.client, err = parseScript(string(f.Data),
				toBackend, toClient, wait, clientEnd, handshake)
		case isBackend:
			b := &scriptedBackend{name: name}
			b.script, err = parseScript(string(f.Data),
				toBackend, toClient, wait, handshake, handshakeAndList, processExit, dialFailure)
			c.backends = append(c.backends, b)
		case f.Name != "audit" && f.Name != "log":
			err = errors.New("unknown section")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, f.Name, err)
		}
	}
	return c, nil
}

// run runs the conversation in a bubble.
func (c *conversation) run(t *testing.T, open StartGateway) {
	log, logger := NewLog()
	journal, auditor := NewLog()
	s := GatewaySetup{Config: c.config, Log: logger, Audit: auditor}
	byName := make(map[string]*scriptedBackend)
	for _, b := range c.backends {
		b.t = t
		s.Backends = append(s.Backends, b.name)
		byName[b.name] = b
	}
	s.Dial = func(name string) (transport.Conn, error) { return byName[name].dial() }
	serve := open(t, s)

	conn, client := NewPeer(t, "client")
	served := make(chan error, 1)
	go func() { served <- serve(t.Context(), conn) }()
	c.runClient(t, client)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	for _, b := range c.backends {
		b.checkFinished()
	}
	time.Sleep(JournalDelay)
	c.checkSection(t, "audit", journal.Lines())
	c.checkSection(t, "log", log.Warnings())
}

// runClient runs the client's script and records the actual messages.
func (c *conversation) runClient(t *testing.T, client *Peer) {
	script := c.client
	if n := len(script); n == 0 || script[n-1].kind != clientEnd {
		ended := false
		for _, l := range script {
			ended = ended || l.kind == clientEnd
		}
		if !ended {
			script = append(script, scriptLine{kind: clientEnd})
		}
	}
	var actual []scriptLine
	for i := 0; i < len(script); {
		step := script[i]
		i++
		actual = append(actual, step)
		if step.kind == comment {
			continue
		}
		switch step.kind {
		case toBackend:
			client.Send(step.text)
		case wait:
			time.Sleep(step.time)
		case clientEnd:
			client.CloseSend()
		case handshake:
			revision, capabilities, _ := strings.Cut(step.text, " ")
			client.Initialize(revision, capabilities)
		}
		var want []string
		var comments []scriptLine
		for ; i < len(script) && (script[i].kind == toClient || script[i].kind == comment); i++ {
			if script[i].kind == comment {
				comments = append(comments, script[i])
				continue
			}
			want = append(want, script[i].text)
		}
		got := client.TakeAll()
		compare(t, fmt.Sprintf("client, after %s", step), got, want)
		for _, text := range got {
			actual = append(actual, scriptLine{kind: toClient, text: text})
		}
		actual = append(actual, comments...)
	}
	if n := len(actual); n > 0 && actual[n-1].kind == clientEnd && len(script) != len(c.client) {
		// the clientEnd that was appended to the script; the client received nothing after it
		actual = actual[:n-1]
	}
	c.client = actual
}

// compare reports the differences between actual and expected messages, unless -update is set.
func compare(t *testing.T, where string, got, want []string) {
	t.Helper()
	if *update {
		return
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s:\nmissing %s", where, want[i])
		case i >= len(want):
			t.Errorf("%s:\nunexpected %s", where, got[i])
		case got[i] != want[i]:
			t.Errorf("%s:\n got %s\nwant %s", where, got[i], want[i])
		}
	}
}

func (c *conversation) checkSection(t *testing.T, section string, got []string) {
	t.Helper()
	text := ""
	if len(got) > 0 {
		text = strings.Join(got, "\n") + "\n"
	}
	for i, f := range c.archive.Files {
		if f.Name == section {
			want := strings.Split(strings.TrimSuffix(string(f.Data), "\n"), "\n")
			if len(f.Data) == 0 {
				want = nil
			}
			compare(t, section, got, want)
			c.archive.Files[i].Data = []byte(text)
		}
	}
}

func (c *conversation) save() error {
	n := 0
	for i, f := range c.archive.Files {
		switch {
		case f.Name == "client":
			c.archive.Files[i].Data = []byte(formatScript(c.client))
		case strings.HasPrefix(f.Name, "backend "):
			c.archive.Files[i].Data = []byte(formatScript(c.backends[n].script))
			n++
		}
	}
	return os.WriteFile(c.path, txtar.Format(c.archive), 0o644)
}

// A scriptedBackend runs its script, one process after the other.
type scriptedBackend struct {
	t    *testing.T
	name string

	mu     sync.Mutex
	script []scriptLine
	next   int     // index of the next line
	peers  []*Peer // one for each process
}

func (b *scriptedBackend) dial() (transport.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.next < len(b.script) && b.script[b.next].kind == comment {
		b.next++
	}
	if b.next < len(b.script) && b.script[b.next].kind == dialFailure {
		b.next++
		return nil, errors.New(b.script[b.next-1].text)
	}
	conn, p := NewPeer(b.t, "backend "+b.name)
	if b.next == len(b.script) && len(b.peers) > 0 {
		return conn, nil // this process does not respond, and its messages are not checked
	}
	b.peers = append(b.peers, p)
	done := make(chan struct{})
	b.t.Cleanup(func() {
		p.Close()
		<-done
	})
	go func() {
		defer close(done)
		for b.runStep(p) {
		}
	}()
	return conn, nil
}

// runStep runs the next line. It returns false if the script or the process has ended.
func (b *scriptedBackend) runStep(p *Peer) bool {
	b.mu.Lock()
	if b.next == len(b.script) {
		b.mu.Unlock()
		return false
	}
	at := b.next
	b.next++
	l := b.script[at]
	b.mu.Unlock()
	switch l.kind {
	case toBackend:
		got, ok := p.waitNext()
		if !ok {
			b.rewind(at)
			return false
		}
		b.mu.Lock()
		b.script[at].text = got
		b.mu.Unlock()
		compare(b.t, "backend "+b.name, []string{got}, []string{l.text})
	case toClient:
		p.Send(l.text)
	case wait:
		time.Sleep(l.time)
	case processExit:
		p.Exit(l.text, "")
		return false
	case handshake, handshakeAndList:
		return b.serveHandshake(p, l)
	}
	return true
}

func (b *scriptedBackend) serveHandshake(p *Peer, l scriptLine) bool {
	result, list := l.text, ""
	if l.kind == handshakeAndList {
		result, list = "", l.text
	}
	if result == "" {
		result = InitializeResult
	}
	if !b.serveResult(p, result) {
		return false
	}
	if _, ok := p.waitNext(); !ok { // notifications/initialized
		return false
	}
	return list == "" || b.serveResult(p, list)
}

func (b *scriptedBackend) serveResult(p *Peer, result string) bool {
	request, ok := p.waitNext()
	if ok {
		m, _ := wire.Parse([]byte(request))
		p.SendResult(m.ID(), result)
	}
	return ok
}

// rewind sets the next line back to index at.
func (b *scriptedBackend) rewind(at int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = at
}

// checkFinished reports script lines that were not reached and unexpected messages.
func (b *scriptedBackend) checkFinished() {
	b.t.Helper()
	var extra []string
	for _, p := range b.peers {
		extra = append(extra, p.TakeAll()...)
	}
	compare(b.t, "backend "+b.name+", after the end of its script", extra, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next < len(b.script) {
		b.t.Errorf("backend %s: script line not reached: %s", b.name, b.script[b.next])
	}
	for _, text := range extra {
		b.script = append(b.script, scriptLine{kind: toBackend, text: text})
	}
}

// waitNext waits, without a timeout, for the next received line and returns it, or false if the
// remote side has closed the connection. It is intended for goroutines other than that of the test.
func (p *Peer) waitNext() (string, bool) {
	for {
		line, over, ok := p.takeLine()
		if ok || over {
			return line, ok
		}
		<-p.arrived
	}
}
