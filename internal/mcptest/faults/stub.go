package faults

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpgateway/internal/wire"
)

// ScriptEnv is an environment variable with the default of the flag -script.
const ScriptEnv = "FAULTS_SCRIPT"

// Main runs the stub on stdin and stdout until stdin ends, and returns the exit code. It ends the
// process itself if a Fault requires that. A fork fault starts the running executable again, so the
// main function of the executable must call Main.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("stub", flag.ContinueOnError)
	flags.SetOutput(stderr)
	text := flags.String("script", os.Getenv(ScriptEnv),
		"behaviour, as `JSON` or @FILE (see package faults)")
	name := flags.String("name", "", "name reported by echo")
	// Used by fork faults.
	grandchild := flags.String("grandchild", "", "run as a grandchild: normal or stubborn")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *grandchild != "" {
		return stayAlive(*grandchild == "stubborn")
	}
	script := Script{}
	if *text != "" {
		s, err := ParseScript(*text)
		if err != nil {
			fmt.Fprintln(stderr, "stub:", err)
			return 2
		}
		script = s
	}
	if *name != "" {
		script.Name = *name
	}
	s := &stub{
		server: newServer(script, os.Getpid()), stdout: stdout, stderr: stderr,
		cancels: make(map[wire.ID]context.CancelFunc), pending: make(map[wire.ID]chan wire.Message),
	}
	return s.serve(stdin)
}

// stayAlive is the main loop of a grandchild. It ends after ten minutes, so that a failed test
// leaves no process.
func stayAlive(stubborn bool) int {
	if stubborn {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	}
	<-time.After(10 * time.Minute)
	return 0
}

// A stub is a server on stdio.
type stub struct {
	*server
	stderr io.Writer

	calls sync.WaitGroup

	writeMu sync.Mutex // held during the write of a line
	stdout  io.Writer

	stateMu      sync.Mutex
	cancels      map[wire.ID]context.CancelFunc // for calls that can be cancelled
	pending      map[wire.ID]chan wire.Message  // unanswered requests to the client
	requestCount int
	muted        bool
	mutedUntil   time.Time // zero = forever
	ignoreStop   bool
}

func (s *stub) serve(stdin io.Reader) int {
	if s.Script.IgnoreStop {
		s.ignoreTermination()
	}
	start := s.plan(wire.Message{}, s.dueFaults("start"), "")
	s.execute(context.Background(), wire.Message{}, start)
	lines := bufio.NewReaderSize(stdin, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.handleLine(line)
		}
		if err != nil {
			break
		}
	}
	s.stateMu.Lock()
	for _, cancel := range s.cancels {
		cancel()
	}
	ignoreStop := s.ignoreStop
	s.stateMu.Unlock()
	if ignoreStop {
		return stayAlive(true)
	}
	s.calls.Wait()
	return 0
}

// ignoreTermination makes the process ignore SIGTERM and the end of stdin.
func (s *stub) ignoreTermination() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.ignoreStop = true
}

// handleLine handles a line. It starts a goroutine for slow work.
func (s *stub) handleLine(line []byte) {
	m, err := wire.Parse(line)
	if err != nil {
		return
	}
	if m.Kind() == wire.Response {
		s.stateMu.Lock()
		pending := s.pending[m.ID()]
		delete(s.pending, m.ID())
		s.stateMu.Unlock()
		if pending != nil {
			pending <- m
		}
		return
	}
	if m.Method() == "notifications/cancelled" {
		s.stateMu.Lock()
		cancel := s.cancels[m.RequestID()]
		s.stateMu.Unlock()
		if cancel != nil {
			cancel()
		}
	}
	faults := s.dueFaults(m.Method())
	if m.Method() == "tools/call" && m.Name() == "do" {
		requested, err := requestedFaults(m.Part(wire.PartArguments))
		if err != nil {
			rpcErr := wire.Errorf(wire.CodeInvalidParams, "%v", err)
			s.writeLine(wire.NewErrorResponse(m.ID(), rpcErr).Raw(), 0, 0, nil)
			return
		}
		faults = append(faults, requested...)
	}
	p := s.plan(m, faults, s.otherCall(m.ID()))
	if p.die != nil && p.die.At == "reading" {
		die(*p.die)
	}
	if p.mute != nil {
		s.mute(*p.mute)
	}
	if m.Kind() != wire.Request || m.Method() != "tools/call" ||
		m.Name() == "echo" && len(faults) == 0 {
		s.execute(context.Background(), m, p) // before the next line, to keep the order
		s.pauseReading(p)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stateMu.Lock()
	s.cancels[m.ID()] = cancel
	s.stateMu.Unlock()
	s.calls.Go(func() {
		defer func() {
			cancel()
			s.stateMu.Lock()
			delete(s.cancels, m.ID())
			s.stateMu.Unlock()
		}()
		if m.Name() != "slow" || s.runSlow(ctx, m) {
			s.execute(ctx, m, p)
		}
	})
	s.pauseReading(p)
}

// pauseReading blocks the reading goroutine if the plan requires it, possibly forever.
func (s *stub) pauseReading(p responsePlan) {
	switch {
	case p.stopReading == nil:
	case p.stopReading.Duration == 0:
		s.calls.Wait()
		stayAlive(false)
	default:
		<-time.After(time.Duration(p.stopReading.Duration))
	}
}

// otherCall returns the id of another call in flight; "" = none.
func (s *stub) otherCall(not wire.ID) wire.ID {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	for id := range s.cancels {
		if id != not {
			return id
		}
	}
	return ""
}

// runSlow waits and reports progress for the tool slow. It returns false if the call was
// cancelled.
func (s *stub) runSlow(ctx context.Context, m wire.Message) bool {
	ms, steps := slowArguments(m)
	for i := range steps + 1 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(ms) * time.Millisecond / time.Duration(steps+1)):
		}
		if i < steps && m.Token() != "" {
			s.writeLine(progressNotification(m.Token(), i+1, steps), 0, 0, nil)
		}
	}
	return true
}

// progressNotification returns a progress notification.
func progressNotification(token wire.ID, n, of int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress",`+
		`"params":{"progressToken":%s,"progress":%d,"total":%d}}`, token, n, of)
}

// execute writes a response with its faults.
func (s *stub) execute(ctx context.Context, m wire.Message, p responsePlan) {
	if p.ignoreStop {
		s.ignoreTermination()
	}
	for _, f := range p.forks {
		s.startGrandchildren(f)
	}
	s.writeStderr(p.stderrBytes)
	if p.delay > 0 {
		select {
		case <-time.After(p.delay):
		case <-ctx.Done():
			return
		}
	}
	if p.request != nil {
		p.response = s.withClientResponse(m, p.response, s.sendRequest(ctx, *p.request))
	}
	for _, line := range p.before {
		s.writeLine(line, p.chunkSize, p.chunkPause, nil)
	}
	if p.die != nil && p.die.At != "middle" && p.die.At != "after" {
		die(*p.die)
	}
	if p.response != nil {
		s.writeResponse(p)
	}
	for _, line := range p.after {
		s.writeLine(line, p.chunkSize, p.chunkPause, nil)
	}
	if p.die != nil {
		die(*p.die)
	}
	if p.stopReading != nil && m.Kind() == wire.Invalid { // fault of "start"
		s.pauseReading(p)
	}
}

func (s *stub) writeResponse(p responsePlan) {
	half := len(p.response) / 2
	switch {
	case p.die != nil && p.die.At == "middle":
		s.writeLine(p.response, p.chunkSize, p.chunkPause, func(written int) bool {
			if written >= half {
				die(*p.die)
			}
			return true
		})
	case p.between != nil:
		line := slices.Concat(p.response[:half], p.between, p.response[half:])
		s.writeLine(line, p.chunkSize, p.chunkPause, nil)
	default:
		s.writeLine(p.response, p.chunkSize, p.chunkPause, nil)
	}
}

// writeLine writes a line, in chunks if chunk is not 0. at is called between two chunks; if it
// returns false, writing stops. A muted stub writes nothing.
func (s *stub) writeLine(line []byte, chunk int, pause time.Duration, at func(written int) bool) {
	s.stateMu.Lock()
	muted := s.muted && (s.mutedUntil.IsZero() || time.Now().Before(s.mutedUntil))
	s.stateMu.Unlock()
	if muted {
		return
	}
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	text := append(bytes.Clone(line), '\n')
	if chunk == 0 {
		chunk = len(text)
		if at != nil {
			chunk = len(text)/2 + 1
		}
	}
	for i := 0; i < len(text); i += chunk {
		if at != nil && i > 0 && !at(i) {
			return
		}
		if _, err := s.stdout.Write(text[i:min(i+chunk, len(text))]); err != nil {
			return
		}
		if pause > 0 && i+chunk < len(text) {
			<-time.After(pause)
		}
	}
}

func (s *stub) mute(f Fault) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.muted, s.mutedUntil = true, time.Time{}
	if f.Duration > 0 {
		s.mutedUntil = time.Now().Add(time.Duration(f.Duration))
	}
}

// writeStderr writes size bytes to stderr.
func (s *stub) writeStderr(size int) {
	line := []byte("stub " + s.Name + " floods its stderr: " + strings.Repeat("~", 100) + "\n")
	for ; size > 0; size -= len(line) {
		if _, err := s.stderr.Write(line[:min(size, len(line))]); err != nil {
			return
		}
	}
}

// sendRequest sends a request to the client and returns the response; null if there is no response.
func (s *stub) sendRequest(ctx context.Context, f Fault) []byte {
	response := make(chan wire.Message, 1)
	s.stateMu.Lock()
	s.requestCount++
	id := wire.ID(strconv.Itoa(s.requestCount))
	s.pending[id] = response
	s.stateMu.Unlock()
	s.writeLine(serverRequest(f, id), 0, 0, nil)
	select {
	case m := <-response:
		return m.Raw()
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	return []byte("null")
}

func serverRequest(f Fault, id wire.ID) []byte {
	params := []byte(nil)
	if f.Text != "" {
		params = []byte(f.Text)
	}
	return wire.NewRequest(id, f.What, params).Raw()
}

// withClientResponse adds the client's response to the result of a call.
func (s *server) withClientResponse(m wire.Message, response, clientResponse []byte) []byte {
	if response == nil {
		return nil
	}
	return s.respond(m, m.ID(), nil, `,"reply":`+string(clientResponse))
}

// startGrandchildren starts grandchildren, which inherit stdout and stderr.
func (s *stub) startGrandchildren(f Fault) {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(s.stderr, "stub:", err)
		return
	}
	how := "normal"
	if f.How == "stubborn" {
		how = f.How
	}
	for range f.times() {
		cmd := exec.Command(self, "-grandchild", how)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if f.How == "setsid" {
			setsid(cmd)
		}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(s.stderr, "stub: fork:", err)
		}
	}
}

// die ends this process immediately.
func die(f Fault) {
	if f.By == "kill" {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
			select {} // until the signal arrives
		}
	}
	os.Exit(f.Code)
}
