package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// A contest is some ways on which the same is done, in turn. The first way that has something between client
// and server is the one that the others are measured by.
type contest struct {
	name string
	ways []way
	work []work
}

// Work is what is done.
type work struct {
	inFlight int
	size     int // bytes each way
}

// A row is what came of one work on one way: medians over the rounds.
type row struct {
	Contest  string        `json:"contest"`
	InFlight int           `json:"in_flight"`
	Size     int           `json:"bytes_each_way"`
	Way      string        `json:"way"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	Rate     float64       `json:"calls_per_second"`
	CPU      time.Duration `json:"cpu_per_call_ns"` // of the process between; 0 = there is none, or it is not known
	// What it is of the reference in the same round, the median over the rounds; 0 = not known.
	P50Ratio  float64 `json:"p50_ratio"`
	P99Ratio  float64 `json:"p99_ratio"`
	RateRatio float64 `json:"rate_ratio"`
	CPURatio  float64 `json:"cpu_ratio"`
	RSS       int     `json:"resident_bytes"`
}

// A round is what one way made of a work once.
type round struct {
	p50, p99 time.Duration
	rate     float64
	cpu      time.Duration
}

func (r *run) hold(c contest) error {
	ways := make([]*open, 0, len(c.ways))
	defer func() {
		for _, o := range ways {
			o.close()
		}
	}()
	for _, w := range c.ways {
		o, err := w.open(r)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		ways = append(ways, o)
	}
	reference := max(0, slices.IndexFunc(ways, func(o *open) bool { return o.between != nil }))
	r.report.begin(c.name)
	for _, w := range c.work {
		if r.plan.inFlight > 0 && w.inFlight != r.plan.inFlight || r.plan.bytes > 0 && w.size != r.plan.bytes {
			continue
		}
		rounds, err := r.rounds(ways, reference, w)
		if err != nil {
			return fmt.Errorf("%s, %d in flight, %s: %w", c.name, w.inFlight, bytesText(w.size), err)
		}
		for i, o := range ways {
			it := summary(rounds[i], rounds[reference])
			it.Contest, it.InFlight, it.Size, it.Way = c.name, w.inFlight, w.size, o.name
			if o.between != nil {
				it.RSS = resident(o.between.pid())
			}
			r.report.add(it)
		}
	}
	return nil
}

// rounds does the work on each way in turn, as often as the plan says.
func (r *run) rounds(ways []*open, reference int, w work) ([][]round, error) {
	n, err := r.howMany(ways, reference, w)
	if err != nil {
		return nil, err
	}
	all := make([][]round, len(ways))
	for k := range r.plan.rounds + 1 {
		for i := range ways {
			i = (i + k) % len(ways) // nobody is always the first
			one, err := ways[i].round(n, w)
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

// howMany warms the ways up and returns how many calls make a round of the length that is planned.
func (r *run) howMany(ways []*open, reference int, w work) (n int, err error) {
	few := max(2*w.inFlight, 8)
	for range 2 {
		for i, o := range ways {
			s, err := o.calls(few, w)
			if err != nil {
				return 0, err
			}
			if i == reference {
				n = int(r.plan.round * time.Duration(few) / max(s.elapsed, 1))
			}
		}
	}
	return min(max(n, few), 20_000), nil
}

func (o *open) calls(n int, w work) (*sample, error) {
	s, err := o.client.calls(n, w.inFlight, call{o.tool, w.size})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	return s, nil
}

func (o *open) round(n int, w work) (round, error) {
	before := o.cpu()
	s, err := o.calls(n, w)
	if err != nil {
		return round{}, err
	}
	return round{
		p50: quantile(s.took, 0.5), p99: quantile(s.took, 0.99),
		rate: float64(n) / s.elapsed.Seconds(),
		cpu:  (o.cpu() - before) / time.Duration(n),
	}, nil
}

func (o *open) cpu() time.Duration {
	if o.between == nil {
		return 0
	}
	return cpuTime(o.between.pid())
}

func summary(rounds, reference []round) row {
	p50 := func(r round) float64 { return float64(r.p50) }
	p99 := func(r round) float64 { return float64(r.p99) }
	rate := func(r round) float64 { return r.rate }
	cpu := func(r round) float64 { return float64(r.cpu) }
	return row{
		P50: time.Duration(middle(rounds, p50)), P99: time.Duration(middle(rounds, p99)),
		Rate: middle(rounds, rate), CPU: time.Duration(middle(rounds, cpu)),
		P50Ratio: ratio(rounds, reference, p50), P99Ratio: ratio(rounds, reference, p99),
		RateRatio: ratio(rounds, reference, rate), CPURatio: ratio(rounds, reference, cpu),
	}
}

// middle returns the median of a figure over the rounds.
func middle(rounds []round, figure func(round) float64) float64 {
	all := make([]float64, len(rounds))
	for i, r := range rounds {
		all[i] = figure(r)
	}
	return quantile(all, 0.5)
}

// ratio returns the median, over the rounds, of what a figure is of the reference's: what changes on the
// machine from one moment to the next is in both.
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

// quantile returns the q-quantile of all, which it sorts.
func quantile[T time.Duration | float64](all []T, q float64) T {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
