//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

// A soak has at most soakClients permanent clients. Of the calls to backends that are not exempt,
// soakFaults percent have a fault. Faults from outside are injected every few seconds.
const (
	soakClients = 20
	soakFaults  = 2
)

// A sample is the footprint of the gateway at one time.
type sample struct {
	Seconds float64 `json:"seconds"` // time since the start
	Calls   int     `json:"calls"`
	footprint
}

// A slope is the growth of one figure.
type slope struct {
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	First   float64 `json:"first"` // median of the first quarter of the samples
	Last    float64 `json:"last"`  // median of the last quarter
	PerHour float64 `json:"perHour"`
	Error   float64 `json:"error"` // twice the standard error of PerHour
	Allowed float64 `json:"allowed"`
	Grows   bool    `json:"grows"` // PerHour exceeds both Error and Allowed
}

// runSoak runs moderate load for a long time and measures growth.
func (w *harness) runSoak(ctx context.Context) (bool, error) {
	w.clients = min(w.clients, soakClients)
	clients := w.allClients()
	limited, end := context.WithTimeout(ctx, w.limit)
	defer end()
	p := w.stats.beginPhase("soak", soakFaults)
	forEachClient(clients, func(c *client) {
		if err := c.transport.open(ctx); err != nil {
			c.breach("cannot connect: %v", err)
		}
	})
	forEachClient(clients, func(c *client) { c.callAllBackends(limited, p) })
	var load sync.WaitGroup
	load.Go(func() {
		forEachClient(clients,
			func(c *client) { c.makeCalls(limited, p, math.MaxInt, w.rate/float64(len(clients))) })
	})
	load.Go(func() { newFaultInjector(w, clients, 1).run(limited, 8*time.Second) })
	load.Go(func() { (&shortClients{w, p}).run(limited, 1, 2*time.Second) })
	if w.reloads {
		load.Go(func() { newConfigChanger(w, 1).run(limited, time.Minute) })
	}
	samples := w.takeSamples(limited, p)
	load.Wait()
	forEachClient(clients, func(c *client) { c.transport.close(true) })
	p.finish()
	w.stats.print("")
	slopes := slopesOf(samples, w.warm)
	fmt.Printf("\n%d samples, warmed up for %v\n%-12s %12s %12s %14s %12s\n", len(samples), w.warm,
		"", "first ¼", "last ¼", "per hour", "±")
	for _, s := range slopes {
		result := "within noise"
		if s.Grows {
			result = "GROWS"
			if w.limit > 10*time.Minute { // growth in shorter runs is not judged
				w.stats.breach("%s grows by %.1f %s an hour", s.What, s.PerHour, s.Unit)
			}
		}
		fmt.Printf("%-12s %12.1f %12.1f %+14.2f %12.2f  %s; %s\n", s.What, s.First, s.Last,
			s.PerHour, s.Error, s.Unit, result)
	}
	if w.json != "" {
		text, _ := json.MarshalIndent(map[string]any{"seed": w.seed, "calls": w.stats.calls,
			"broken": w.stats.broken, "slopes": slopes, "samples": samples}, "", " ")
		if err := os.WriteFile(w.json, append(text, '\n'), 0o644); err != nil {
			return false, err
		}
	}
	w.saveProfiles(context.Background(), "after")
	for _, problem := range w.gateway.stop() {
		w.stats.breach("%s", problem)
	}
	return w.printOutcome(), nil
}

// takeSamples takes samples until ctx is done, and prints a line each minute.
func (w *harness) takeSamples(ctx context.Context, p *phase) (samples []sample) {
	ticker := time.NewTicker(w.sample)
	defer ticker.Stop()
	lastPrint := time.Now().Add(-time.Minute)
	for {
		select {
		case <-ctx.Done():
			return samples
		case <-ticker.C:
		}
		f, err := w.gateway.footprint(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.stats.breach("cannot read the gateway's footprint: %v", err)
			}
			continue
		}
		s := sample{time.Since(p.began).Seconds(), w.stats.callCount(), f}
		samples = append(samples, s)
		if time.Since(lastPrint) >= time.Minute {
			lastPrint = time.Now()
			fmt.Printf(
				"%s  calls %7d  RSS %6.1f MiB  heap %6.1f MiB  goroutines %4d  descriptors %4d  processes %3d  broken %d\n",
				time.Duration(s.Seconds*float64(time.Second)).Round(time.Second), s.Calls,
				mib(f.RSS), mib(f.Heap), f.Goroutines, f.Descriptors, f.Processes,
				w.stats.breachCount())
		}
	}
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// slopesOf returns the slope of each figure. It ignores the samples of the warm-up, the time before
// warm.
func slopesOf(samples []sample, warm time.Duration) (all []slope) {
	kept := samples[:0:0]
	for _, s := range samples {
		if s.Seconds >= warm.Seconds() {
			kept = append(kept, s)
		}
	}
	for _, q := range []struct {
		what, unit string
		allowed    float64 // per hour
		of         func(sample) float64
	}{
		{"RSS", "MiB", 8, func(s sample) float64 { return mib(s.RSS) }},
		{"heap", "MiB", 2, func(s sample) float64 { return mib(s.Heap) }},
		{"goroutines", "", 10, func(s sample) float64 { return float64(s.Goroutines) }},
		{"descriptors", "", 5, func(s sample) float64 { return float64(s.Descriptors) }},
		{"processes", "", 1, func(s sample) float64 { return float64(s.Processes) }},
	} {
		x, y := make([]float64, len(kept)), make([]float64, len(kept))
		for i, s := range kept {
			x[i], y[i] = s.Seconds/3600, q.of(s)
		}
		s := slope{What: q.what, Unit: q.unit, Allowed: q.allowed}
		s.PerHour, s.Error = fitSlope(x, y)
		s.First, s.Last = median(y[:(len(y)+3)/4]), median(y[len(y)-(len(y)+3)/4:])
		s.Grows = s.PerHour > q.allowed && s.PerHour > s.Error
		all = append(all, s)
	}
	return all
}
