//go:build unix

// Command chaos starts a gateway with 20 backends and 50 clients, injects a fault every few
// milliseconds, and checks the promises of docs/reliability.md: each call gets exactly one
// response, which is correct and reaches the client that made the call; healthy backends stay as
// fast as without faults; no processes or resources are left.
//
//	go run ./integration/chaos                         120,000 calls, two and a half minutes
//	go run ./integration/chaos -calls 1000000 -for 20m
//	go run ./integration/chaos -seed 7                 repeats the calls and faults of another run
//	go run ./integration/chaos -soak -for 1h           moderate load; measures growth over time
//
// A seed determines each call of each client; the interleaving of the clients depends on the
// machine. The exit status is 1 if a promise was broken. In this case the log, audit records and
// configuration of the gateway stay in a directory, whose path chaos prints.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
	"time"
)

// options are the options of the command line.
type options struct {
	gateway     string // path of the binary; "" = build it
	seed        uint64
	calls       int
	limit       time.Duration
	clients     int
	rate        float64 // calls per second
	reload      string  // "auto", "yes" or "no"
	judgeAlways bool
	keep        bool
	verbose     bool

	soakMode bool
	json     string
	sample   time.Duration
	warm     time.Duration
}

// memoryLimit is the number of bytes that chaos itself may use before its garbage collector runs.
// With this limit the collector runs three times in a run of two minutes. With GOGC=100 it ran 4.7
// times per second, for 9 ms each, and affected 4 % of the measured latencies; with GOGC=800 it ran
// every 7 s.
const memoryLimit = 1 << 30

func main() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	p := options{}
	flag.StringVar(&p.gateway, "gateway", "", "the gateway's `binary`; default: build it")
	flag.Uint64Var(&p.seed, "seed", 0,
		"repeat the calls and faults of the run with this seed; 0 = a new one")
	flag.IntVar(&p.calls, "calls", 120_000, "number of calls")
	flag.DurationVar(&p.limit, "for", 0,
		"time limit without warm-up and shutdown; default 6m, with -soak 1h")
	flag.IntVar(&p.clients, "clients", 50, "number of clients")
	flag.Float64Var(&p.rate, "rate", 0,
		"calls per second of all clients; default 1000, with -soak 150")
	flag.StringVar(&p.reload, "reload", "auto",
		"reload the configuration: yes, no, or auto (if the gateway supports it)")
	flag.BoolVar(&p.judgeAlways, "strict", false,
		"judge the p99 even if the machine is busy with other work")
	flag.BoolVar(&p.keep, "keep", false, "keep the directory with logs even after success")
	flag.BoolVar(&p.verbose, "v", false, "print faults from outside as they are injected")
	profile := flag.String("cpuprofile", "", "write a profile of chaos itself to this `FILE`")
	flag.BoolVar(&p.soakMode, "soak", false,
		"run moderate load for a long time and measure the growth of the gateway")
	flag.StringVar(&p.json, "json", "", "with -soak: write samples and slopes to this `FILE`")
	flag.DurationVar(&p.sample, "sample", 10*time.Second, "with -soak: sample interval")
	flag.DurationVar(&p.warm, "warm", 2*time.Minute, "with -soak: warm-up, not counted")
	flag.Parse()
	if p.seed == 0 {
		p.seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			os.Exit(1)
		}
	}
	p.defaults()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := p.run(ctx)
	pprof.StopCPUProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

func (p *options) defaults() {
	if p.limit == 0 {
		p.limit = 6 * time.Minute
		if p.soakMode {
			p.limit = time.Hour
		}
	}
	if p.rate == 0 {
		// This rate, with the faults, uses half of two cores. At higher rates chaos would measure
		// the queue for the processors.
		p.rate = 1000
		if p.soakMode {
			p.rate = 150
		}
	}
}

// run runs chaos or a soak and reports whether all promises were kept.
func (p *options) run(ctx context.Context) (ok bool, err error) {
	w, err := build(ctx, p)
	if err != nil {
		return false, err
	}
	defer func() { w.cleanUp(ok && !p.keep) }()
	fmt.Printf("chaos: seed %d, %d clients, 20 backends; logs in %s\n", p.seed, p.clients, w.dir)
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() { // if the gateway exits by itself, the run ends
		<-w.gateway.exited
		if !w.gateway.stopping.Load() {
			w.stats.breach("the gateway exited: %v", w.gateway.cmd.ProcessState)
			giveUp()
		}
	}()
	if p.soakMode {
		return w.runSoak(ctx)
	}
	return w.runChaos(ctx)
}
