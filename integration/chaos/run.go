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

// crowd are the clients: of 50, 24 with HTTP sessions, 16 without, 6 over HTTP+SSE and
// 4 with a gateway of their own on stdio. One of three does not behave.
func (w *world) crowd() (all []*client) {
	for i := range w.clients {
		kind, backends := "http", w.backends
		switch {
		case i%25 >= 23:
			kind, backends = "stdio", small(w.backends)
		case i%25 >= 20:
			kind = "sse"
		case i%25 >= 12:
			kind = "stateless"
		}
		c := newClient(w, i, kind, backends, i%3 == 2)
		c.steady = true
		all = append(all, c)
	}
	return all
}

// each does something with all clients at once.
func each(clients []*client, do func(*client)) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { do(c) })
	}
	all.Wait()
}

// atOnce is how many calls of a client may be on their way: more than a client at this rate has ever, but for a moment in
// which nothing is answered. Fewer would hold back calls to one backend while those to others take long, and have them all made
// at once later.
const atOnce = 16

// late is how much later than its time a call may be made.
const late = 20 * time.Millisecond

// make has a client make so many calls, at a rate, and waits for them.
func (c *client) make(ctx context.Context, p *phase, calls int, rate float64) {
	slots := make(chan struct{}, atOnce)
	var under sync.WaitGroup
	due := time.Now()
	for range calls {
		d := c.script.next(p.share)
		if d.n%500 == 0 {
			c.list(ctx, p)
		}
		due = due.Add(time.Duration(c.script.rng.ExpFloat64() / rate * float64(time.Second)))
		if behind := time.Since(due); behind > late {
			due = time.Now() // what was not done in time is not made up for all at once: that would be a flood
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
		under.Go(func() {
			defer func() { <-slots }()
			c.do(ctx, p, d)
		})
	}
	under.Wait()
}

// A run has so many rounds, each with a calm part, of so much of its calls, and one with faults. At
// its end there is one more that is calm.
const (
	rounds = 9
	calmly = 0.3
	faulty = 60 // of a hundred calls to backends that are not spared
)

func (w *world) chaos(ctx context.Context) (bool, error) {
	clients := w.crowd()
	if err := w.visit(ctx, clients, func(limited context.Context) {
		visitor := newClient(w, len(clients), "stateless", w.backends, false)
		w.arrive(limited, append(clients[:len(clients):len(clients)], visitor))
		visitor.way.close(true)
		w.stage(limited, clients, "warm up", 0, w.calls/50)
	}); err != nil {
		return false, err
	}
	before, err := w.warmed(ctx)
	if err != nil {
		return false, err
	}
	w.keepProfiles(ctx, "before")
	w.tally = newTally(w.seed)
	err = w.visit(ctx, clients, func(limited context.Context) {
		w.arrive(limited, clients)
		w.rounds(limited, clients, 1)
		if w.tally.slow(w.strict) {
			fmt.Println("the tails are too long, so far: as many rounds again, and all of them count")
			w.rounds(limited, clients, 1+rounds)
		}
	})
	if err != nil {
		return false, err
	}
	after, err := w.settled(ctx, before)
	if err != nil {
		return false, err
	}
	short := ""
	if w.tally.calls < w.calls {
		short = fmt.Sprintf(": %d were to be made, and the time (-for) was over", w.calls)
	}
	w.tally.print(short)
	w.compare(ctx, before, after)
	w.tally.judge(w.strict)
	for _, p := range w.stop() {
		w.tally.breach("%s", p)
	}
	return w.verdict(), ctx.Err()
}

// rounds makes all calls there are, in rounds that are numbered from first on.
func (w *world) rounds(ctx context.Context, clients []*client, first int) {
	part := float64(w.calls) / (rounds + calmly)
	for i := first; i < first+rounds; i++ {
		w.stage(ctx, clients, fmt.Sprintf("quiet %d", i), 0, int(part*calmly))
		w.stage(ctx, clients, fmt.Sprintf("chaos %d", i), faulty, int(part*(1-calmly)))
	}
	w.stage(ctx, clients, fmt.Sprintf("quiet %d", first+rounds), 0, int(part*calmly))
}

// visit has all clients come, do something, and leave.
func (w *world) visit(ctx context.Context, clients []*client, do func(context.Context)) error {
	limited, end := context.WithTimeout(ctx, w.limit)
	defer end()
	each(clients, func(c *client) {
		if err := c.way.open(ctx); err != nil {
			c.breach("it was not let in: %v", err)
		}
	})
	do(limited)
	each(clients, func(c *client) { c.way.close(true) })
	return ctx.Err()
}

// arrive has all clients greet all backends. How long that takes is not looked at: gateways on stdio are
// starting.
func (w *world) arrive(ctx context.Context, clients []*client) {
	p := w.tally.begin("arriving", 0)
	defer p.finish()
	each(clients, func(c *client) { c.greetAll(ctx, p) })
	p.times = nil
}

// greetAll has a client call each backend, so that whatever the gateway keeps for it is there: a line to a
// backend of which each client has its own, and a buffer for answers as long as they will be.
func (c *client) greetAll(ctx context.Context, p *phase) {
	for _, b := range c.script.backends {
		c.do(ctx, p, c.script.echo(b))
		if !b.spared() {
			c.do(ctx, p, c.script.huge(b))
		}
	}
}

// stage is so many calls of all clients together, with faults or without.
func (w *world) stage(ctx context.Context, clients []*client, name string, share, calls int) {
	if ctx.Err() != nil {
		return
	}
	p := w.tally.begin(name, share)
	before := w.work()
	defer func() {
		p.finish()
		p.work = w.work().since(before)
	}()
	outside, end := context.WithCancel(ctx)
	var wild sync.WaitGroup
	if share > 0 {
		round := len(w.tally.phases)
		wild.Go(func() { w.rage(outside, clients, round, 500*time.Millisecond) })
		wild.Go(func() { w.receive(outside, p, round, 400*time.Millisecond) })
		if w.reloads {
			wild.Go(func() { w.rewrite(outside, round, 3*time.Second) })
		}
	}
	each(clients, func(c *client) {
		c.make(ctx, p, int(math.Ceil(float64(calls)/float64(len(clients)))), w.rate/float64(len(clients)))
	})
	end()
	wild.Wait()
}

// What the gateway may take more, at the end, than when it was warm.
const (
	moreGoroutines  = 8
	moreDescriptors = 8
	moreHeap        = 8 << 20
)

func (f footprint) within(before footprint) bool {
	return f.Goroutines <= before.Goroutines+moreGoroutines && f.Descriptors <= before.Descriptors+moreDescriptors &&
		f.Heap <= before.Heap+moreHeap && f.Processes <= before.Processes && f.Zombies == 0
}

// What goes by itself within this time is gone before the gateway is measured: idle sessions of clients
// that left without a word, idle connections.
const calmDown = 5 * time.Second

// warmed measures the gateway when all clients have gone, for a while: backends come and go, and the most counts.
func (w *world) warmed(ctx context.Context) (most footprint, err error) {
	for began := time.Now(); time.Since(began) < calmDown+3*time.Second; {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return most, ctx.Err()
		}
		f, err := w.footprint(ctx)
		if err != nil {
			return f, fmt.Errorf("the gateway does not tell what it takes: %w", err)
		}
		if time.Since(began) > calmDown {
			most = most.most(f)
		}
	}
	return most, nil
}

func (f footprint) most(g footprint) footprint {
	return footprint{
		CPU: g.CPU, Goroutines: max(f.Goroutines, g.Goroutines), Heap: max(f.Heap, g.Heap), RSS: max(f.RSS, g.RSS),
		Descriptors: max(f.Descriptors, g.Descriptors), Processes: max(f.Processes, g.Processes), Zombies: max(f.Zombies, g.Zombies),
	}
}

// least is what f takes no more than, where g is less.
func (f footprint) least(g footprint) footprint {
	f.Goroutines, f.Descriptors, f.Processes = min(f.Goroutines, g.Goroutines), min(f.Descriptors, g.Descriptors), min(f.Processes, g.Processes)
	f.Heap, f.Zombies = min(f.Heap, g.Heap+moreHeap/2), min(f.Zombies, g.Zombies)
	return f
}

// settled measures the gateway as soon as it takes no more than before; after a while a little more will do, and
// after another while it is as it is.
func (w *world) settled(ctx context.Context, before footprint) (f footprint, err error) {
	for began := time.Now(); ; {
		if f, err = w.footprint(ctx); err != nil {
			return f, fmt.Errorf("the gateway does not tell what it takes: %w", err)
		}
		switch waited := time.Since(began); {
		case f == f.least(before), waited > 12*time.Second && f.within(before), waited > 45*time.Second:
			return f, nil
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return f, ctx.Err()
		}
	}
}

// compare prints what the gateway takes, and finds fault with it.
func (w *world) compare(ctx context.Context, before, after footprint) {
	fmt.Println("\nthe gateway, all clients gone   warm   at the end")
	row := func(what string, b, a any, ok bool) {
		fmt.Printf("  %-24s %10v %12v\n", what, b, a)
		if !ok {
			w.tally.breach("%s: %v before, %v at the end", what, b, a)
		}
	}
	row("goroutines", before.Goroutines, after.Goroutines, after.Goroutines <= before.Goroutines+moreGoroutines)
	row("descriptors", before.Descriptors, after.Descriptors, after.Descriptors <= before.Descriptors+moreDescriptors)
	row("processes", before.Processes, after.Processes, after.Processes <= before.Processes)
	row("zombies", before.Zombies, after.Zombies, after.Zombies == 0)
	row("heap, KiB", before.Heap>>10, after.Heap>>10, after.Heap <= before.Heap+moreHeap)
	row("resident, KiB", before.RSS>>10, after.RSS>>10, true)
	row("processor time", before.CPU.Round(10*time.Millisecond), after.CPU.Round(10*time.Millisecond), true)
	w.keepProfiles(ctx, "after")
}

// keepProfiles writes down where the gateway's goroutines stand, and its heap.
func (w *world) keepProfiles(ctx context.Context, when string) {
	for path, name := range map[string]string{"/goroutines": "goroutines-" + when + ".txt", "/heap": "heap-" + when + ".pprof"} {
		if profile, err := w.debug(ctx, path); err == nil {
			_ = os.WriteFile(filepath.Join(w.dir, name), profile, 0o600)
		}
	}
}

// verdict prints what became of it.
func (w *world) verdict() bool {
	t := w.tally
	if t.broken == 0 {
		fmt.Printf("\nno promise was broken; seed %d\n", w.seed)
		return true
	}
	fmt.Printf("\n%d promises were broken; seed %d; the first:\n", t.broken, w.seed)
	for _, d := range t.details {
		fmt.Println("  " + d)
	}
	return false
}
