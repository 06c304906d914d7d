package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// A comparison runs the same workloads on several variants in turn. The reference is the first
// variant with a process between client and server.
type comparison struct {
	name      string
	variants  []variant
	workloads []workload
}

// A workload describes the calls of a measurement.
type workload struct {
	inFlight int
	size     int // bytes of the argument, and of the result
}

// figures are the results of one workload on one variant: medians over the rounds, and the resident
// memory after the last round.
type figures struct {
	Comparison string        `json:"contest"`
	InFlight   int           `json:"in_flight"`
	Size       int           `json:"bytes_each_way"`
	Variant    string        `json:"way"`
	P50        time.Duration `json:"p50_ns"`
	P99        time.Duration `json:"p99_ns"`
	Rate       float64       `json:"calls_per_second"`
	// processor time of the process in the middle; 0 = no such process, or unknown
	CPU time.Duration `json:"cpu_per_call_ns"`
	// Ratios to the reference in the same round, as medians over the rounds; 0 = unknown.
	P50Ratio  float64 `json:"p50_ratio"`
	P99Ratio  float64 `json:"p99_ratio"`
	RateRatio float64 `json:"rate_ratio"`
	CPURatio  float64 `json:"cpu_ratio"`
	RSS       int     `json:"resident_bytes"`
}

// A round contains the results of one variant in one round.
type round struct {
	p50, p99 time.Duration
	rate     float64
	cpu      time.Duration
}

func (r *benchmark) runComparison(c comparison) error {
	running := make([]*runningVariant, 0, len(c.variants))
	defer func() {
		for _, o := range running {
			o.close()
		}
	}()
	for _, w := range c.variants {
		o, err := w.open()
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		running = append(running, o)
	}
	reference := max(0, slices.IndexFunc(running,
		func(o *runningVariant) bool { return o.measured != nil }))
	r.report.printHeader(c.name)
	for _, w := range c.workloads {
		if r.plan.inFlight > 0 && w.inFlight != r.plan.inFlight || r.plan.bytes > 0 &&
			w.size != r.plan.bytes {
			continue
		}
		rounds, err := r.runRounds(running, reference, w)
		if err != nil {
			return fmt.Errorf("%s, %d in flight, %s: %w", c.name, w.inFlight, bytesText(w.size),
				err)
		}
		for i, o := range running {
			it := summary(rounds[i], rounds[reference])
			it.Comparison, it.InFlight, it.Size, it.Variant = c.name, w.inFlight, w.size, o.name
			if o.measured != nil {
				it.RSS = residentBytes(o.measured.pid())
			}
			r.report.add(it)
		}
	}
	return nil
}

// runRounds runs the workload on each variant in turn, in one warm-up round and options.rounds
// measured rounds.
func (r *benchmark) runRounds(running []*runningVariant, reference int,
	w workload) ([][]round, error) {
	n, err := r.callsPerRound(running, reference, w)
	if err != nil {
		return nil, err
	}
	all := make([][]round, len(running))
	for k := range r.plan.rounds + 1 {
		for i := range running {
			i = (i + k) % len(running) // each variant is first in some rounds
			one, err := running[i].round(n, w)
			if err != nil {
				return nil, err
			}
			if k > 0 {
				all[i] = append(all[i], one)
			}
		}
	}
	return all, nil
}

// callsPerRound warms up the variants. It returns the number of calls that take about
// options.roundTime on the reference: at least 8 and two for each call in flight, at most 20,000.
func (r *benchmark) callsPerRound(running []*runningVariant, reference int,
	w workload) (n int, err error) {
	few := max(2*w.inFlight, 8)
	for range 2 {
		for i, o := range running {
			s, err := o.calls(few, w)
			if err != nil {
				return 0, err
			}
			if i == reference {
				n = int(r.plan.roundTime * time.Duration(few) / max(s.elapsed, 1))
			}
		}
	}
	return min(max(n, few), 20_000), nil
}

func (o *runningVariant) calls(n int, w workload) (*callTimes, error) {
	s, err := o.client.makeCalls(n, w.inFlight, callSpec{o.tool, w.size})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	return s, nil
}

func (o *runningVariant) round(n int, w workload) (round, error) {
	before := o.cpu()
	s, err := o.calls(n, w)
	if err != nil {
		return round{}, err
	}
	return round{
		p50: quantile(s.latencies, 0.5), p99: quantile(s.latencies, 0.99),
		rate: float64(n) / s.elapsed.Seconds(),
		cpu:  (o.cpu() - before) / time.Duration(n),
	}, nil
}

func (o *runningVariant) cpu() time.Duration {
	if o.measured == nil {
		return 0
	}
	return cpuTime(o.measured.pid())
}

func summary(rounds, reference []round) figures {
	p50 := func(r round) float64 { return float64(r.p50) }
	p99 := func(r round) float64 { return float64(r.p99) }
	rate := func(r round) float64 { return r.rate }
	cpu := func(r round) float64 { return float64(r.cpu) }
	return figures{
		P50: time.Duration(median(rounds, p50)), P99: time.Duration(median(rounds, p99)),
		Rate: median(rounds, rate), CPU: time.Duration(median(rounds, cpu)),
		P50Ratio: ratio(rounds, reference, p50), P99Ratio: ratio(rounds, reference, p99),
		RateRatio: ratio(rounds, reference, rate), CPURatio: ratio(rounds, reference, cpu),
	}
}

// median returns the median of a figure over the rounds.
func median(rounds []round, figure func(round) float64) float64 {
	all := make([]float64, len(rounds))
	for i, r := range rounds {
		all[i] = figure(r)
	}
	return quantile(all, 0.5)
}

// ratio returns, as the median over the rounds, the ratio of a figure to that of the reference in
// the same round. Changes on the machine affect both figures.
func ratio(rounds, reference []round, figure func(round) float64) float64 {
	all := make([]float64, len(rounds))
	for i := range rounds {
		of := figure(reference[i])
		if of == 0 {
			return 0
		}
		all[i] = figure(rounds[i]) / of
	}
	return quantile(all, 0.5)
}

// quantile returns the q-quantile of all. It sorts all.
func quantile[T time.Duration | float64](all []T, q float64) T {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
