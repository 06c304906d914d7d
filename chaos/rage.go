//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"mcpgateway/internal/mcptest/faults"
)

// rage does to the backends, from outside, what no call does, until ctx is done.
func (w *world) rage(ctx context.Context, round int) {
	rng := rand.New(rand.NewPCG(w.seed, 1_000_000+uint64(round)))
	for {
		select {
		case <-time.After(time.Duration(100+rng.IntN(300)) * time.Millisecond):
		case <-ctx.Done():
			return
		}
		b := w.victim(rng)
		switch {
		case b.http:
			w.upset(rng, b)
		case rng.IntN(3) == 0:
			w.freeze(ctx, b, time.Duration(100+rng.IntN(400))*time.Millisecond)
		default:
			w.kill(b)
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

func (w *world) kill(b *backend) {
	if w.signal(b, syscall.SIGKILL) {
		w.tally.fault("outside: SIGKILL")
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
		b.twin.Forget(status)
		w.tally.fault("outside: sessions lost")
		return
	}
	d := []faults.Deed{
		{Fault: "status", Code: 500}, {Fault: "status", Code: 503, Retry: "1"}, {Fault: "status", Code: 404},
		{Fault: "reset"}, {Fault: "cut", At: "middle"}, {Fault: "type", Text: "text/html"}, {Fault: "delay", For: 300 * ms},
	}[rng.IntN(7)]
	w.say("%s: %s for the next requests", b.name, d.Fault)
	b.twin.Next(d, 1+rng.IntN(5))
	w.tally.fault("outside: next requests " + d.Fault)
}
