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
	"strconv"
	"sync"
	"syscall"
	"time"

	"mcpgateway/internal/wire"
)

// ScriptEnv holds the script of a stub that gets none by flag.
const ScriptEnv = "FAULTS_SCRIPT"

// Main is the program: it serves what its flags say on stdin and stdout until stdin
// ends, and returns the exit code. It ends the process itself where a Fault says so.
// It forks by starting its own binary, so it has to be the main of one.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("stub", flag.ContinueOnError)
	flags.SetOutput(stderr)
	text := flags.String("script", os.Getenv(ScriptEnv), "how to behave, as `JSON` or @FILE (see package faults)")
	name := flags.String("name", "", "what echo says that it is")
	grandchild := flags.String("grandchild", "", "be one: normal or stubborn") // how it forks
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

// stayAlive is all that a grandchild does. It ends by itself after a while, so that a test
// that goes wrong leaves nothing for ever.
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

	writeMu sync.Mutex // a line at a time
	stdout  io.Writer

	stateMu      sync.Mutex
	cancels      map[wire.ID]context.CancelFunc // calls that may be cancelled
	pending      map[wire.ID]chan wire.Message  // to what we asked
	requestCount int
	muted        bool
	mutedUntil   time.Time // when it ends; zero = never
	ignoreStop   bool
}

func (s *stub) serve(stdin io.Reader) int {
	if s.Script.IgnoreStop {
		s.ignoreTermination()
	}
	s.execute(context.Background(), wire.Message{}, s.plan(wire.Message{}, s.dueFaults("start"), ""))
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
	stays := s.ignoreStop
	s.stateMu.Unlock()
	if stays {
		return stayAlive(true)
	}
	s.calls.Wait()
	return 0
}

// ignoreTermination makes SIGTERM and the end of stdin mean nothing.
func (s *stub) ignoreTermination() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.ignoreStop = true
}

// handleLine handles a line. What may take time goes on by itself.
func (s *stub) handleLine(line []byte) {
	m, err := wire.Parse(line)
	if err != nil {
		return
	}
	if m.Kind() == wire.Response {
		s.stateMu.Lock()
		waits := s.pending[m.ID()]
		delete(s.pending, m.ID())
		s.stateMu.Unlock()
		if waits != nil {
			waits <- m
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
		more, err := requestedFaults(m.Part(wire.PartArguments))
		if err != nil {
			s.writeLine(wire.NewErrorResponse(m.ID(), wire.Errorf(wire.CodeInvalidParams, "%v", err)).Raw(), 0, 0, nil)
			return
		}
		faults = append(faults, more...)
	}
	p := s.plan(m, faults, s.otherCall(m.ID()))
	if p.die != nil && p.die.At == "reading" {
		die(*p.die)
	}
	if p.mute != nil {
		s.mute(*p.mute)
	}
	if m.Kind() != wire.Request || m.Method() != "tools/call" || m.Name() == "echo" && len(faults) == 0 {
		s.execute(context.Background(), m, p) // in order: what is read next was said after it
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

// pauseReading is what the reader does not do for a while, or never again.
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

// otherCall returns the id of a call that is being answered, and is not this one.
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

// runSlow is what slow does before it answers; it reports whether it was not cancelled.
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

// progressNotification is a notification of progress.
func progressNotification(token wire.ID, n, of int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d}}`, token, n, of)
}

// execute does what is planned.
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
	if p.stopReading != nil && m.Kind() == wire.Invalid { // at the start
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
		s.writeLine(bytes.Join([][]byte{p.response[:half], p.between, p.response[half:]}, nil), p.chunkSize, p.chunkPause, nil)
	default:
		s.writeLine(p.response, p.chunkSize, p.chunkPause, nil)
	}
}

// writeLine writes a line, in chunks if there are to be any; at is asked about each place
// between two. What is written while nothing is to be is lost.
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

// writeStderr writes lines to stderr.
func (s *stub) writeStderr(size int) {
	line := []byte("stub " + s.Name + " floods its stderr: " + string(bytes.Repeat([]byte("~"), 100)) + "\n")
	for ; size > 0; size -= len(line) {
		if _, err := s.stderr.Write(line[:min(size, len(line))]); err != nil {
			return
		}
	}
}

// sendRequest sends a request of ours and returns the text of what came back, null if that is nothing.
func (s *stub) sendRequest(ctx context.Context, f Fault) []byte {
	reply := make(chan wire.Message, 1)
	s.stateMu.Lock()
	s.requestCount++
	id := wire.ID(strconv.Itoa(s.requestCount))
	s.pending[id] = reply
	s.stateMu.Unlock()
	s.writeLine(serverRequest(f, id), 0, 0, nil)
	select {
	case m := <-reply:
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

// withClientResponse puts what was replied into the result of a call.
func (s *server) withClientResponse(m wire.Message, answer, reply []byte) []byte {
	if answer == nil {
		return nil
	}
	return s.respond(m, m.ID(), nil, `,"reply":`+string(reply))
}

// startGrandchildren starts grandchildren, which hold our pipes open.
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

// die ends this process, here and now.
func die(f Fault) {
	if f.By == "kill" {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
			select {} // it is on its way
		}
	}
	os.Exit(f.Code)
}
