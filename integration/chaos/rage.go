//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"mcpgateway/internal/mcptest/faults"
	"mcpgateway/internal/wire"
)

// pause waits for about d; it reports whether ctx is not done.
func pause(ctx context.Context, rng *rand.Rand, d time.Duration) bool {
	select {
	case <-time.After(d/2 + time.Duration(rng.Int64N(int64(d)))):
		return true
	case <-ctx.Done():
		return false
	}
}

// rage does to the backends, from outside, what no call does, every now and then until
// ctx is done.
func (w *world) rage(ctx context.Context, clients []*client, round int, every time.Duration) {
	rng := rand.New(rand.NewPCG(w.seed, 1_000_000+uint64(round)))
	for pause(ctx, rng, every) {
		b := w.victim(rng)
		switch {
		case b.http:
			w.upset(rng, b)
		case rng.IntN(3) == 0 || b.kills.Load() >= mostKills:
			w.freeze(ctx, b, time.Duration(100+rng.IntN(400))*time.Millisecond)
		default:
			w.kill(ctx, clients, b)
		}
	}
}

// victim draws a backend that is not spared. Those that die by themselves do not need it.
func (w *world) victim(rng *rand.Rand) *backend {
	for {
		if b := w.backends[rng.IntN(len(w.backends))]; b.role == liar {
			return b
		}
	}
}

func (w *world) say(format string, args ...any) {
	if w.verbose {
		fmt.Printf("%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// signal sends one to the process of a backend, if it is known and is ours.
func (w *world) signal(b *backend, sig syscall.Signal) bool {
	pid := int(b.pid.Load())
	if pid == 0 || !carries(pid, w.mark) {
		return false
	}
	w.say("%v to %s (%d)", sig, b.name, pid)
	return syscall.Kill(pid, sig) == nil
}

// mostKills is how often a liar is killed in one life of its configuration: the fifth failure in a row would have the
// gateway give it up for a while, and then little more would happen to it.
const mostKills = 3

// kill kills a process, and looks when the calls end that are there.
func (w *world) kill(ctx context.Context, clients []*client, b *backend) {
	var there []*call
	for _, c := range clients {
		if c.kind != "stdio" {
			there = append(there, c.at(b)...)
		}
	}
	at := time.Now()
	if !w.signal(b, syscall.SIGKILL) {
		return
	}
	b.killed.Store(at.UnixNano())
	b.kills.Add(1)
	w.tally.fault("outside: SIGKILL")
	for _, x := range there {
		go func() {
			select {
			case <-x.done:
				if strings.Contains(string(x.answer.Part(wire.PartError)), "signal: killed") {
					w.tally.killed(time.Since(at))
				}
			case <-ctx.Done():
			}
		}()
	}
}

// freeze stops a process for a while.
func (w *world) freeze(ctx context.Context, b *backend, d time.Duration) {
	pid := int(b.pid.Load())
	if !w.signal(b, syscall.SIGSTOP) {
		return
	}
	w.tally.fault("outside: SIGSTOP")
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	if carries(pid, w.mark) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// upset has an HTTP server lose its sessions, or answer the next requests in ways of
// its own, whatever they are: calls, lists, handshakes.
func (w *world) upset(rng *rand.Rand, b *backend) {
	if rng.IntN(2) == 0 {
		status := []int{404, 400, 200}[rng.IntN(3)]
		w.say("%s loses its sessions (%d)", b.name, status)
		b.twin.DropSessions(status)
		w.tally.fault("outside: sessions lost")
		return
	}
	d := []faults.Fault{
		{Kind: "status", Code: 500}, {Kind: "status", Code: 503, RetryAfter: "1"}, {Kind: "status", Code: 404},
		{Kind: "reset"}, {Kind: "cut", At: "middle"}, {Kind: "type", Text: "text/html"}, {Kind: "delay", Duration: 300 * ms},
	}[rng.IntN(7)]
	w.say("%s: %s for the next requests", b.name, d.Kind)
	b.twin.FailNext(d, 1+rng.IntN(5))
	w.tally.fault("outside: next requests " + d.Kind)
}

// rewrite changes the configuration, every now and then until ctx is done: backends that are not spared are
// changed, those that are mortal now and then left out, and some files are wrong.
func (w *world) rewrite(ctx context.Context, round int, every time.Duration) {
	rng := rand.New(rand.NewPCG(w.seed, 2_000_000+uint64(round)))
	for pause(ctx, rng, every) {
		w.reload(rng)
	}
	w.reloadWith(w.backends, "") // all are back
}

// reload writes a file that differs from the last.
func (w *world) reload(rng *rand.Rand) {
	backends, wrong := slices.Clone(w.backends), ""
	kind := "outside: reload, changed"
	changed := w.backends[rng.IntN(len(w.backends))]
	switch rng.IntN(6) {
	case 0:
		wrong, kind = "nonsense: [", "outside: reload, a wrong file"
	case 1:
		kind = "outside: reload, left out"
		backends = slices.DeleteFunc(backends, func(b *backend) bool { return b.role == mortal && rng.IntN(2) == 0 })
	case 2:
		kind = "outside: reload, nothing new"
	default:
		if changed.spared() {
			changed = w.byName["s8"]
		}
		changed.generation++
		changed.kills.Store(0)
	}
	w.tally.fault(kind)
	w.say("%s (%s)", kind, changed.name)
	w.reloadWith(backends, wrong)
}

// reloadWith writes the configuration and has it read.
func (w *world) reloadWith(backends []*backend, wrong string) {
	if err := writeConfig(w.config, configuration(backends, w.dir, "main", w.stub, w.mark)+wrong); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return
	}
	_ = w.cmd.Process.Signal(syscall.SIGHUP)
}
