//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// allClients returns the clients. Of 50 clients, 24 are legacy clients over HTTP, 16 are modern
// clients over HTTP, 6 use HTTP+SSE, and 4 use stdio, each with a gateway of its own. One third of
// the clients misbehaves.
func (w *harness) allClients() (all []*client) {
	for i := range w.clients {
		kind, backends := "http", w.backends
		switch {
		case i%25 >= 23:
			kind, backends = "stdio", stdioBackends(w.backends)
		case i%25 >= 20:
			kind = "sse"
		case i%25 >= 12:
			kind = "stateless"
		}
		c := newClient(w, i, kind, backends, i%3 == 2)
		c.permanent = true
		all = append(all, c)
	}
	return all
}

// forEachClient calls do for all clients concurrently, and waits for all calls to return.
func forEachClient(clients []*client, do func(*client)) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { do(c) })
	}
	all.Wait()
}

// maxConcurrent is the maximum number of calls in flight of a client. At the default rate a client
// reaches it only if nothing responds for a moment. A lower limit would delay calls to fast
// backends while slow backends are busy, and then release the delayed calls all at once.
const maxConcurrent = 16

// maxLateness is the maximum delay of a call; after a longer delay the schedule restarts.
const maxLateness = 20 * time.Millisecond

// makeCalls makes the given number of calls at a rate (calls per second), and waits for their ends.
func (c *client) makeCalls(ctx context.Context, p *phase, calls int, rate float64) {
	slots := make(chan struct{}, maxConcurrent)
	var inFlight sync.WaitGroup
	due := time.Now()
	for range calls {
		d := c.script.next(p.share)
		if d.n%500 == 0 {
			c.list(ctx, p)
		}
		due = due.Add(time.Duration(c.script.rng.ExpFloat64() / rate * float64(time.Second)))
		if behind := time.Since(due); behind > maxLateness {
			due = time.Now() // making up for the lost time would be a burst
		} else if behind < 0 {
			select {
			case <-time.After(-behind):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		inFlight.Go(func() {
			defer func() { <-slots }()
			c.perform(ctx, p, d)
		})
	}
	inFlight.Wait()
}

// A run has roundCount rounds. Each round consists of a calm phase and a phase with faults. A
// final calm phase follows. If the p99 is then too high, the run has as many rounds again. All
// phases have the same number of calls: if the machine stalls for 100 ms now and then, the p99 of
// a longer phase is higher.
const (
	roundCount   = 9
	faultPercent = 60 // percent of the calls to backends that are not exempt
)

func (w *harness) runChaos(ctx context.Context) (bool, error) {
	clients := w.allClients()
	if err := w.withConnected(ctx, clients, func(limited context.Context) {
		short := newClient(w, len(clients), "stateless", w.backends, false)
		w.warmConnections(limited, append(clients[:len(clients):len(clients)], short))
		short.transport.close(true)
		w.runPhase(limited, clients, "warm up", 0, w.calls/50)
	}); err != nil {
		return false, err
	}
	before, err := w.measureWarm(ctx)
	if err != nil {
		return false, err
	}
	w.saveProfiles(ctx, "before")
	w.stats = newStats(w.seed)
	err = w.withConnected(ctx, clients, func(limited context.Context) {
		w.warmConnections(limited, clients)
		w.runRounds(limited, clients, 1)
		if w.stats.isTooSlow(w.judgeAlways) {
			fmt.Println("p99 too high so far: running as many rounds again; all of them count")
			w.runRounds(limited, clients, 1+roundCount)
		}
	})
	if err != nil {
		return false, err
	}
	after, err := w.measureAtEnd(ctx, before)
	if err != nil {
		return false, err
	}
	short := ""
	if w.stats.calls < w.calls {
		short = fmt.Sprintf(": %d were planned, but the time limit (-for) was reached", w.calls)
	}
	w.stats.print(short)
	w.compareFootprints(ctx, before, after)
	w.stats.judge(w.judgeAlways)
	for _, p := range w.gateway.stop() {
		w.stats.breach("%s", p)
	}
	return w.printOutcome(), ctx.Err()
}

// runRounds makes all calls, in rounds numbered from first.
func (w *harness) runRounds(ctx context.Context, clients []*client, first int) {
	calls := w.calls / (2*roundCount + 1)
	for i := first; i < first+roundCount; i++ {
		w.runPhase(ctx, clients, fmt.Sprintf("quiet %d", i), 0, calls)
		w.runPhase(ctx, clients, fmt.Sprintf("chaos %d", i), faultPercent, calls)
	}
	w.runPhase(ctx, clients, fmt.Sprintf("quiet %d", first+roundCount), 0, calls)
}

// withConnected connects all clients, calls do and disconnects the clients. The context of do is
// done after w.limit.
func (w *harness) withConnected(ctx context.Context, clients []*client,
	do func(context.Context)) error {
	limited, end := context.WithTimeout(ctx, w.limit)
	defer end()
	forEachClient(clients, func(c *client) {
		if err := c.transport.open(ctx); err != nil {
			c.breach("cannot connect: %v", err)
		}
	})
	do(limited)
	forEachClient(clients, func(c *client) { c.transport.close(true) })
	return ctx.Err()
}

// warmConnections makes all clients call all backends. Latencies are discarded, because the
// gateways on stdio are still starting.
func (w *harness) warmConnections(ctx context.Context, clients []*client) {
	p := w.stats.beginPhase("arriving", 0)
	defer p.finish()
	forEachClient(clients, func(c *client) { c.callAllBackends(ctx, p) })
	p.latencies = nil
}

// callAllBackends calls each backend, so that the gateway allocates all that it keeps for the
// client: per-session connections, and buffers for the largest responses.
func (c *client) callAllBackends(ctx context.Context, p *phase) {
	for _, b := range c.script.backends {
		c.perform(ctx, p, c.script.echo(b))
		if !b.isExempt() {
			c.perform(ctx, p, c.script.huge(b))
		}
	}
}

// runPhase makes calls with all clients. share is the percentage of the calls with a fault; 0 = a
// calm phase.
func (w *harness) runPhase(ctx context.Context, clients []*client, name string, share, calls int) {
	if ctx.Err() != nil {
		return
	}
	p := w.stats.beginPhase(name, share)
	before := w.gateway.processorTime()
	defer func() {
		p.finish()
		p.work = w.gateway.processorTime().since(before)
	}()
	faultCtx, end := context.WithCancel(ctx)
	var faults sync.WaitGroup
	if share > 0 {
		round := len(w.stats.phases)
		injector := newFaultInjector(w, clients, round)
		faults.Go(func() { injector.run(faultCtx, 500*time.Millisecond) })
		faults.Go(func() { (&shortClients{w, p}).run(faultCtx, round, 400*time.Millisecond) })
		if w.reloads {
			faults.Go(func() { newConfigChanger(w, round).run(faultCtx, 3*time.Second) })
		}
	}
	forEachClient(clients, func(c *client) {
		c.makeCalls(ctx, p, int(math.Ceil(float64(calls)/float64(len(clients)))),
			w.rate/float64(len(clients)))
	})
	end()
	faults.Wait()
}

// Maximum growth of the gateway from the warm-up to the end.
const (
	extraGoroutines  = 8
	extraDescriptors = 8
	extraHeap        = 8 << 20
)

func (f footprint) within(before footprint) bool {
	return f.Goroutines <= before.Goroutines+extraGoroutines &&
		f.Descriptors <= before.Descriptors+extraDescriptors &&
		f.Heap <= before.Heap+extraHeap && f.Processes <= before.Processes && f.Zombies == 0
}

// settleTime is the maximum time for which idle connections, and the sessions of clients that left
// silently, remain.
const settleTime = 5 * time.Second

// measureWarm measures the gateway without clients for a few seconds. It returns the maximum of
// each figure, because backends are restarting.
func (w *harness) measureWarm(ctx context.Context) (most footprint, err error) {
	for began := time.Now(); time.Since(began) < settleTime+3*time.Second; {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return most, ctx.Err()
		}
		f, err := w.gateway.footprint(ctx)
		if err != nil {
			return f, fmt.Errorf("cannot read the gateway's footprint: %w", err)
		}
		if time.Since(began) > settleTime {
			most = most.maximum(f)
		}
	}
	return most, nil
}

func (f footprint) maximum(g footprint) footprint {
	return footprint{
		CPU: g.CPU, Goroutines: max(f.Goroutines, g.Goroutines), Heap: max(f.Heap, g.Heap),
		RSS:         max(f.RSS, g.RSS),
		Descriptors: max(f.Descriptors, g.Descriptors), Processes: max(f.Processes, g.Processes),
		Zombies: max(f.Zombies, g.Zombies),
	}
}

// minimum returns f with each figure limited to the figure of g, with two exceptions: the heap is
// limited to the heap of g plus half of extraHeap, and RSS and CPU are not limited.
func (f footprint) minimum(g footprint) footprint {
	f.Goroutines, f.Descriptors, f.Processes = min(f.Goroutines, g.Goroutines),
		min(f.Descriptors, g.Descriptors), min(f.Processes, g.Processes)
	f.Heap, f.Zombies = min(f.Heap, g.Heap+extraHeap/2), min(f.Zombies, g.Zombies)
	return f
}

// measureAtEnd measures the gateway until the gateway uses no more than before. After 12 s it
// accepts the allowed growth; after 45 s it accepts any result.
func (w *harness) measureAtEnd(ctx context.Context, before footprint) (f footprint, err error) {
	for began := time.Now(); ; {
		if f, err = w.gateway.footprint(ctx); err != nil {
			return f, fmt.Errorf("cannot read the gateway's footprint: %w", err)
		}
		switch waited := time.Since(began); {
		case f == f.minimum(before), waited > 12*time.Second && f.within(before),
			waited > 45*time.Second:
			return f, nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return f, ctx.Err()
		}
	}
}

// compareFootprints prints the footprints, and counts each excessive growth as a broken promise.
func (w *harness) compareFootprints(ctx context.Context, before, after footprint) {
	fmt.Println("\ngateway without clients         warm   at the end")
	row := func(what string, b, a any, ok bool) {
		fmt.Printf("  %-24s %10v %12v\n", what, b, a)
		if !ok {
			w.stats.breach("%s: %v after warming up, %v at the end", what, b, a)
		}
	}
	row("goroutines", before.Goroutines, after.Goroutines,
		after.Goroutines <= before.Goroutines+extraGoroutines)
	row("descriptors", before.Descriptors, after.Descriptors,
		after.Descriptors <= before.Descriptors+extraDescriptors)
	row("processes", before.Processes, after.Processes, after.Processes <= before.Processes)
	row("zombies", before.Zombies, after.Zombies, after.Zombies == 0)
	row("heap, KiB", before.Heap>>10, after.Heap>>10, after.Heap <= before.Heap+extraHeap)
	row("resident, KiB", before.RSS>>10, after.RSS>>10, true)
	row("processor time", before.CPU.Round(10*time.Millisecond),
		after.CPU.Round(10*time.Millisecond), true)
	w.saveProfiles(ctx, "after")
}

// saveProfiles writes the gateway's goroutine and heap profiles.
func (w *harness) saveProfiles(ctx context.Context, when string) {
	for path, name := range map[string]string{"/goroutines": "goroutines-" + when + ".txt",
		"/heap": "heap-" + when + ".pprof"} {
		if profile, err := w.gateway.debug(ctx, path); err == nil {
			_ = os.WriteFile(filepath.Join(w.dir, name), profile, 0o600)
		}
	}
}

// printOutcome prints the result and reports whether all promises were kept.
func (w *harness) printOutcome() bool {
	t := w.stats
	if t.broken == 0 {
		fmt.Printf("\nno promise was broken; seed %d\n", w.seed)
		return true
	}
	fmt.Printf("\n%d promises were broken; seed %d; first ones:\n", t.broken, w.seed)
	for _, d := range t.details {
		fmt.Println("  " + d)
	}
	return false
}
