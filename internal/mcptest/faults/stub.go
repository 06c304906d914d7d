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
		return linger(*grandchild == "stubborn")
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
		server: newServer(script, os.Getpid()), out: stdout, err: stderr,
		running: make(map[wire.ID]context.CancelFunc), replies: make(map[wire.ID]chan wire.Message),
	}
	return s.serve(stdin)
}

// linger is all that a grandchild does. It ends by itself after a while, so that a test
// that goes wrong leaves nothing for ever.
func linger(stubborn bool) int {
	if stubborn {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	}
	<-time.After(10 * time.Minute)
	return 0
}

// A stub is a server on stdio.
type stub struct {
	*server
	err io.Writer

	working sync.WaitGroup

	writing sync.Mutex // a line at a time
	out     io.Writer

	state    sync.Mutex
	running  map[wire.ID]context.CancelFunc // calls that may be cancelled
	replies  map[wire.ID]chan wire.Message  // to what we asked
	asks     int
	muted    bool
	unmuted  time.Time // when it ends; zero = never
	stubborn bool
}

func (s *stub) serve(stdin io.Reader) int {
	if s.Script.IgnoreStop {
		s.harden()
	}
	s.carryOut(context.Background(), wire.Message{}, s.plan(wire.Message{}, s.scripted("start"), ""))
	lines := bufio.NewReaderSize(stdin, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			s.hear(line)
		}
		if err != nil {
			break
		}
	}
	s.state.Lock()
	for _, cancel := range s.running {
		cancel()
	}
	stays := s.stubborn
	s.state.Unlock()
	if stays {
		return linger(true)
	}
	s.working.Wait()
	return 0
}

// harden makes SIGTERM and the end of stdin mean nothing.
func (s *stub) harden() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	s.state.Lock()
	defer s.state.Unlock()
	s.stubborn = true
}

// hear handles a line. What may take time goes on by itself.
func (s *stub) hear(line []byte) {
	m, err := wire.Parse(line)
	if err != nil {
		return
	}
	if m.Kind() == wire.Response {
		s.state.Lock()
		waits := s.replies[m.ID()]
		delete(s.replies, m.ID())
		s.state.Unlock()
		if waits != nil {
			waits <- m
		}
		return
	}
	if m.Method() == "notifications/cancelled" {
		s.state.Lock()
		cancel := s.running[m.RequestID()]
		s.state.Unlock()
		if cancel != nil {
			cancel()
		}
	}
	deeds := s.scripted(m.Method())
	if m.Method() == "tools/call" && m.Name() == "do" {
		more, err := asked(m.Part(wire.PartArguments))
		if err != nil {
			s.write(wire.NewErrorResponse(m.ID(), wire.Errorf(wire.CodeInvalidParams, "%v", err)).Raw(), 0, 0, nil)
			return
		}
		deeds = append(deeds, more...)
	}
	p := s.plan(m, deeds, s.another(m.ID()))
	if p.die != nil && p.die.At == "reading" {
		die(*p.die)
	}
	if p.mute != nil {
		s.mute(*p.mute)
	}
	if m.Kind() != wire.Request || m.Method() != "tools/call" || m.Name() == "echo" && len(deeds) == 0 {
		s.carryOut(context.Background(), m, p) // in order: what is read next was said after it
		s.listen(p)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.state.Lock()
	s.running[m.ID()] = cancel
	s.state.Unlock()
	s.working.Go(func() {
		defer func() {
			cancel()
			s.state.Lock()
			delete(s.running, m.ID())
			s.state.Unlock()
		}()
		if m.Name() != "slow" || s.dawdle(ctx, m) {
			s.carryOut(ctx, m, p)
		}
	})
	s.listen(p)
}

// listen is what the reader does not do for a while, or never again.
func (s *stub) listen(p plan) {
	switch {
	case p.deaf == nil:
	case p.deaf.Duration == 0:
		s.working.Wait()
		linger(false)
	default:
		<-time.After(time.Duration(p.deaf.Duration))
	}
}

// another returns the id of a call that is being answered, and is not this one.
func (s *stub) another(not wire.ID) wire.ID {
	s.state.Lock()
	defer s.state.Unlock()
	for id := range s.running {
		if id != not {
			return id
		}
	}
	return ""
}

// dawdle is what slow does before it answers; it reports whether it was not cancelled.
func (s *stub) dawdle(ctx context.Context, m wire.Message) bool {
	ms, steps := slowly(m)
	for i := range steps + 1 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(ms) * time.Millisecond / time.Duration(steps+1)):
		}
		if i < steps && m.Token() != "" {
			s.write(step(m.Token(), i+1, steps), 0, 0, nil)
		}
	}
	return true
}

// step is a notification of progress.
func step(token wire.ID, n, of int) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d}}`, token, n, of)
}

// carryOut does what is planned.
func (s *stub) carryOut(ctx context.Context, m wire.Message, p plan) {
	if p.stubborn {
		s.harden()
	}
	for _, d := range p.forks {
		s.fork(d)
	}
	s.flood(p.stderr)
	if p.delay > 0 {
		select {
		case <-time.After(p.delay):
		case <-ctx.Done():
			return
		}
	}
	if p.ask != nil {
		p.answer = s.withReply(m, p.answer, s.ask(ctx, *p.ask))
	}
	for _, line := range p.before {
		s.write(line, p.chunk, p.pause, nil)
	}
	if p.die != nil && p.die.At != "middle" && p.die.At != "after" {
		die(*p.die)
	}
	if p.answer != nil {
		s.writeAnswer(p)
	}
	for _, line := range p.after {
		s.write(line, p.chunk, p.pause, nil)
	}
	if p.die != nil {
		die(*p.die)
	}
	if p.deaf != nil && m.Kind() == wire.Invalid { // at the start
		s.listen(p)
	}
}

func (s *stub) writeAnswer(p plan) {
	half := len(p.answer) / 2
	switch {
	case p.die != nil && p.die.At == "middle":
		s.write(p.answer, p.chunk, p.pause, func(written int) bool {
			if written >= half {
				die(*p.die)
			}
			return true
		})
	case p.between != nil:
		s.write(bytes.Join([][]byte{p.answer[:half], p.between, p.answer[half:]}, nil), p.chunk, p.pause, nil)
	default:
		s.write(p.answer, p.chunk, p.pause, nil)
	}
}

// write writes a line, in chunks if there are to be any; at is asked about each place
// between two. What is written while nothing is to be is lost.
func (s *stub) write(line []byte, chunk int, pause time.Duration, at func(written int) bool) {
	s.state.Lock()
	muted := s.muted && (s.unmuted.IsZero() || time.Now().Before(s.unmuted))
	s.state.Unlock()
	if muted {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
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
		if _, err := s.out.Write(text[i:min(i+chunk, len(text))]); err != nil {
			return
		}
		if pause > 0 && i+chunk < len(text) {
			<-time.After(pause)
		}
	}
}

func (s *stub) mute(d Fault) {
	s.state.Lock()
	defer s.state.Unlock()
	s.muted, s.unmuted = true, time.Time{}
	if d.Duration > 0 {
		s.unmuted = time.Now().Add(time.Duration(d.Duration))
	}
}

// flood writes lines to stderr.
func (s *stub) flood(size int) {
	line := []byte("stub " + s.Name + " floods its stderr: " + string(bytes.Repeat([]byte("~"), 100)) + "\n")
	for ; size > 0; size -= len(line) {
		if _, err := s.err.Write(line[:min(size, len(line))]); err != nil {
			return
		}
	}
}

// ask sends a request of ours and returns the text of what came back, null if that is nothing.
func (s *stub) ask(ctx context.Context, d Fault) []byte {
	reply := make(chan wire.Message, 1)
	s.state.Lock()
	s.asks++
	id := wire.ID(strconv.Itoa(s.asks))
	s.replies[id] = reply
	s.state.Unlock()
	s.write(question(d, id), 0, 0, nil)
	select {
	case m := <-reply:
		return m.Raw()
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	return []byte("null")
}

func question(d Fault, id wire.ID) []byte {
	params := []byte(nil)
	if d.Text != "" {
		params = []byte(d.Text)
	}
	return wire.NewRequest(id, d.What, params).Raw()
}

// withReply puts what was replied into the result of a call.
func (s *server) withReply(m wire.Message, answer, reply []byte) []byte {
	if answer == nil {
		return nil
	}
	return s.respond(m, m.ID(), nil, `,"reply":`+string(reply))
}

// fork starts grandchildren, which hold our pipes open.
func (s *stub) fork(d Fault) {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(s.err, "stub:", err)
		return
	}
	how := "normal"
	if d.How == "stubborn" {
		how = d.How
	}
	for range d.times() {
		cmd := exec.Command(self, "-grandchild", how)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if d.How == "setsid" {
			ownSession(cmd)
		}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(s.err, "stub: fork:", err)
		}
	}
}

// die ends this process, here and now.
func die(d Fault) {
	if d.By == "kill" {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
			select {} // it is on its way
		}
	}
	os.Exit(d.Code)
}
