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

// In a soak one call of so many hundred to a backend that is not spared carries a fault;
// what comes from outside comes every few seconds.
const (
	soakClients = 20
	soakFaults  = 2
)

// A sample is what the gateway takes at some time.
type sample struct {
	Seconds float64 `json:"seconds"` // since the beginning
	Calls   int     `json:"calls"`
	footprint
}

// A slope is how something grows.
type slope struct {
	What    string  `json:"what"`
	Unit    string  `json:"unit"`
	First   float64 `json:"first"` // median of the first quarter of the samples
	Last    float64 `json:"last"`  // and of the last
	PerHour float64 `json:"perHour"`
	Error   float64 `json:"error"` // twice the standard error of PerHour
	Allowed float64 `json:"allowed"`
	Grows   bool    `json:"grows"` // more per hour than its error and what is allowed
}

// soak runs moderate load for a long time, and looks how what the gateway takes changes.
func (w *world) soak(ctx context.Context) (bool, error) {
	w.clients = min(w.clients, soakClients)
	clients := w.crowd()
	limited, end := context.WithTimeout(ctx, w.limit)
	defer end()
	p := w.tally.begin("soak", soakFaults)
	each(clients, func(c *client) {
		if err := c.way.open(ctx); err != nil {
			c.breach("it was not let in: %v", err)
		}
	})
	each(clients, func(c *client) { c.greetAll(limited, p) })
	var load sync.WaitGroup
	load.Go(func() {
		each(clients, func(c *client) { c.make(limited, p, math.MaxInt, w.rate/float64(len(clients))) })
	})
	load.Go(func() { w.rage(limited, clients, 1, 8*time.Second) })
	load.Go(func() { w.receive(limited, p, 1, 2*time.Second) })
	if w.reloads {
		load.Go(func() { w.rewrite(limited, 1, time.Minute) })
	}
	samples := w.watch(limited, p)
	load.Wait()
	each(clients, func(c *client) { c.way.close(true) })
	p.finish()
	w.tally.print("")
	slopes := slopesOf(samples, w.warm)
	fmt.Printf("\n%d samples, warmed up for %v\n%-12s %12s %12s %14s %12s\n", len(samples), w.warm, "", "first ¼", "last ¼", "per hour", "±")
	for _, s := range slopes {
		verdict := "within noise"
		if s.Grows {
			verdict = "GROWS"
			if w.limit > 10*time.Minute { // else it says nothing
				w.tally.breach("%s grows by %.1f %s an hour", s.What, s.PerHour, s.Unit)
			}
		}
		fmt.Printf("%-12s %12.1f %12.1f %+14.2f %12.2f  %s; %s\n", s.What, s.First, s.Last, s.PerHour, s.Error, s.Unit, verdict)
	}
	if w.json != "" {
		text, _ := json.MarshalIndent(map[string]any{"seed": w.seed, "calls": w.tally.calls, "broken": w.tally.broken, "slopes": slopes, "samples": samples}, "", " ")
		if err := os.WriteFile(w.json, append(text, '\n'), 0o644); err != nil {
			return false, err
		}
	}
	w.keepProfiles(context.Background(), "after")
	for _, problem := range w.stop() {
		w.tally.breach("%s", problem)
	}
	return w.verdict(), nil
}

// watch takes samples until ctx is done, and prints a line each minute.
func (w *world) watch(ctx context.Context, p *phase) (samples []sample) {
	ticker := time.NewTicker(w.sample)
	defer ticker.Stop()
	said := time.Now().Add(-time.Minute)
	for {
		select {
		case <-ctx.Done():
			return samples
		case <-ticker.C:
		}
		f, err := w.footprint(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.tally.breach("the gateway does not tell what it takes: %v", err)
			}
			continue
		}
		s := sample{time.Since(p.began).Seconds(), w.tally.count(), f}
		samples = append(samples, s)
		if time.Since(said) >= time.Minute {
			said = time.Now()
			fmt.Printf("%s  calls %7d  RSS %6.1f MiB  heap %6.1f MiB  goroutines %4d  descriptors %4d  processes %3d  broken %d\n",
				time.Duration(s.Seconds*float64(time.Second)).Round(time.Second), s.Calls, mib(f.RSS), mib(f.Heap), f.Goroutines, f.Descriptors, f.Processes, w.tally.breaches())
		}
	}
}

func mib(n uint64) float64 { return float64(n) / (1 << 20) }

// slopesOf are the slopes of all that is sampled, by least squares, without what came before warm.
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
		s.PerHour, s.Error = fit(x, y)
		s.First, s.Last = median(y[:(len(y)+3)/4]), median(y[len(y)-(len(y)+3)/4:])
		s.Grows = s.PerHour > q.allowed && s.PerHour > s.Error
		all = append(all, s)
	}
	return all
}
