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

// pause waits for a random time from d/2 to 3d/2. It returns false if ctx is done first.
func pause(ctx context.Context, rng *rand.Rand, d time.Duration) bool {
	select {
	case <-time.After(d/2 + time.Duration(rng.Int64N(int64(d)))):
		return true
	case <-ctx.Done():
		return false
	}
}

// A faultInjector disturbs backends from outside.
type faultInjector struct {
	*harness
	clients []*client
	rng     *rand.Rand
}

func newFaultInjector(w *harness, clients []*client, round int) *faultInjector {
	return &faultInjector{w, clients, rand.New(rand.NewPCG(w.seed, 1_000_000+uint64(round)))}
}

// run repeatedly disturbs random backends until ctx is done.
func (w *faultInjector) run(ctx context.Context, every time.Duration) {
	for pause(ctx, w.rng, every) {
		b := w.pickTarget()
		switch {
		case b.http:
			w.disturbHTTP(b)
		case w.rng.IntN(3) == 0 || b.kills.Load() >= maxKills:
			w.freeze(ctx, b, time.Duration(100+w.rng.IntN(400))*time.Millisecond)
		default:
			w.kill(ctx, b)
		}
	}
}

// pickTarget returns a random misbehaving backend. Crashing backends end by themselves.
func (w *faultInjector) pickTarget() *backend {
	for {
		if b := w.backends[w.rng.IntN(len(w.backends))]; b.role == misbehaving {
			return b
		}
	}
}

// signal sends sig to the process of a backend, if the process is known and its environment
// contains the mark.
func (w *faultInjector) signal(b *backend, sig syscall.Signal) bool {
	pid := int(b.pid.Load())
	if pid == 0 || !hasMark(pid, w.envMark) {
		return false
	}
	w.logf("%v to %s (%d)", sig, b.name, pid)
	return syscall.Kill(pid, sig) == nil
}

// maxKills is the maximum number of kills of a backend with one version of its configuration. After
// five consecutive failures the gateway would open the breaker, and few faults would reach the
// backend.
const maxKills = 3

// kill kills the process of a backend, and measures the time until the calls in flight at the
// backend end.
func (w *faultInjector) kill(ctx context.Context, b *backend) {
	var inFlight []*call
	for _, c := range w.clients {
		if c.kind != "stdio" {
			inFlight = append(inFlight, c.callsAt(b)...)
		}
	}
	at := time.Now()
	if !w.signal(b, syscall.SIGKILL) {
		return
	}
	b.killedAt.Store(at.UnixNano())
	b.kills.Add(1)
	w.stats.countFault("outside: SIGKILL")
	for _, x := range inFlight {
		go func() {
			select {
			case <-x.done:
				if strings.Contains(string(x.response.Part(wire.PartError)), "signal: killed") {
					w.stats.addTimeToError(time.Since(at))
				}
			case <-ctx.Done():
			}
		}()
	}
}

// freeze stops the process of a backend for d.
func (w *faultInjector) freeze(ctx context.Context, b *backend, d time.Duration) {
	pid := int(b.pid.Load())
	if !w.signal(b, syscall.SIGSTOP) {
		return
	}
	w.stats.countFault("outside: SIGSTOP")
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	if hasMark(pid, w.envMark) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// disturbHTTP makes an HTTP server drop its sessions, or fail its next requests, which may be
// calls, lists or handshakes.
func (w *faultInjector) disturbHTTP(b *backend) {
	if w.rng.IntN(2) == 0 {
		status := []int{404, 400, 200}[w.rng.IntN(3)]
		w.logf("%s drops its sessions (%d)", b.name, status)
		b.httpStub.DropSessions(status)
		w.stats.countFault("outside: sessions lost")
		return
	}
	d := []faults.Fault{
		{Kind: "status", Code: 500}, {Kind: "status", Code: 503, RetryAfter: "1"},
		{Kind: "status", Code: 404},
		{Kind: "reset"}, {Kind: "cut", At: "middle"}, {Kind: "type", Text: "text/html"},
		{Kind: "delay", Duration: 300 * ms},
	}[w.rng.IntN(7)]
	w.logf("%s: %s for the next requests", b.name, d.Kind)
	b.httpStub.FailNext(d, 1+w.rng.IntN(5))
	w.stats.countFault("outside: next requests " + d.Kind)
}

// A configChanger changes the configuration of the running gateway.
type configChanger struct {
	*harness
	rng *rand.Rand
}

func newConfigChanger(w *harness, round int) *configChanger {
	return &configChanger{w, rand.New(rand.NewPCG(w.seed, 2_000_000+uint64(round)))}
}

// run changes the configuration repeatedly until ctx is done: it changes backends that are not
// exempt, sometimes omits crashing backends, and sometimes writes an invalid file.
func (w *configChanger) run(ctx context.Context, every time.Duration) {
	for pause(ctx, w.rng, every) {
		w.reloadChanged()
	}
	w.writeAndReload(w.backends, "") // restores all backends
}

// reloadChanged writes a configuration that usually differs from the last one, and reloads it.
func (w *configChanger) reloadChanged() {
	backends, invalid := slices.Clone(w.backends), ""
	kind := "outside: reload, changed"
	changed := w.backends[w.rng.IntN(len(w.backends))]
	switch w.rng.IntN(6) {
	case 0:
		invalid, kind = "nonsense: [", "outside: reload, invalid file"
	case 1:
		kind = "outside: reload, omitted"
		backends = slices.DeleteFunc(backends,
			func(b *backend) bool { return b.role == crashing && w.rng.IntN(2) == 0 })
	case 2:
		kind = "outside: reload, unchanged"
	default:
		if changed.isExempt() {
			changed = w.byName["s8"]
		}
		changed.configVersion++
		changed.kills.Store(0)
	}
	w.stats.countFault(kind)
	w.logf("%s (%s)", kind, changed.name)
	w.writeAndReload(backends, invalid)
}

// writeAndReload writes the configuration and sends SIGHUP.
func (w *configChanger) writeAndReload(backends []*backend, suffix string) {
	if err := w.writeConfig(backends, suffix); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return
	}
	w.gateway.reload()
}
