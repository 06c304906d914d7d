//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A tally is what has happened.
type tally struct {
	seed uint64

	mu       sync.Mutex
	calls    int
	outcomes map[string]int // of calls
	faults   map[string]int // by kind
	behind   map[string]map[string]int
	phases   []*phase
	broken   int             // promises
	details  []string        // of the first of them
	dead     []time.Duration // from a SIGKILL to the end of a call that was there
	back     []time.Duration // and to the first answer of the next process
}

// A phase is a stretch of calls, with faults or without.
type phase struct {
	name   string
	calm   bool
	share  int // of the calls that may carry a fault so many in a hundred do
	began  time.Time
	took   time.Duration
	work   work // done in it
	calls  int
	faults int
	times  []time.Duration // of echoes at healthy backends, by clients that behave
}

func newTally(seed uint64) *tally {
	return &tally{seed: seed, outcomes: make(map[string]int), faults: make(map[string]int), behind: make(map[string]map[string]int)}
}

func (t *tally) begin(name string, share int) *phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &phase{name: name, calm: share == 0, share: share, began: time.Now()}
	t.phases = append(t.phases, p)
	return p
}

func (p *phase) finish() { p.took = time.Since(p.began) }

// call notes how a call of a phase ended. took counts if timed.
func (t *tally) call(p *phase, fault, outcome string, took time.Duration, timed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	p.calls++
	t.outcomes[outcome]++
	if timed {
		p.times = append(p.times, took)
	}
	if fault != "" {
		if t.behind[fault] == nil {
			t.behind[fault] = make(map[string]int)
		}
		t.behind[fault][outcome]++
	}
}

// fault notes that one was done.
func (t *tally) fault(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[kind]++
	t.phases[len(t.phases)-1].faults++
}

// count returns how many calls have ended.
func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls
}

// breaches returns how many promises were broken.
func (t *tally) breaches() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

const showBroken = 20

// killed notes how long a call outlived its backend.
func (t *tally) killed(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = append(t.dead, d)
}

// revived notes how long a backend was gone.
func (t *tally) revived(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.back = append(t.back, d)
}

// breach notes a broken promise.
func (t *tally) breach(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken++
	if len(t.details) < showBroken {
		text := fmt.Sprintf("%s %s", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
		t.details = append(t.details, text)
		fmt.Println("BROKEN:", text)
	}
}

// quantile returns the q-quantile of all, which it sorts.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// The tail of healthy backends' calls may be twice as long with faults as without. Below
// the floor the ratio says nothing: there the machine's scheduler is what is measured.
const (
	mostRatio = 2.0
	floor     = 5 * time.Millisecond
	restless  = 2.0
)

// unrest is how the calm phases differ among themselves: the upper quartile of their p99 against the
// lower one. Where that is more than restless, the machine is busy with something else, and a
// ratio of two would be found between any two of them.
func (t *tally) unrest() float64 {
	var all []time.Duration
	for _, p := range t.phases {
		if p.calm && len(p.times) > 0 {
			all = append(all, quantile(p.times, 0.99))
		}
	}
	return float64(quantile(all, 0.75)) / float64(max(quantile(all, 0.25), 1))
}

// ratio is the median of the phases with faults: how the p99 of each stands to that of the calm ones before and after
// it. Neighbours are compared, for the machine is used by others, too, and what they do changes from
// minute to minute; and the median, so that one bad moment is not all that counts.
func (t *tally) ratio() float64 {
	var all []float64
	for i, p := range t.phases {
		if p.calm || i == 0 || i+1 >= len(t.phases) || len(p.times) == 0 {
			continue
		}
		before, after := quantile(t.phases[i-1].times, 0.99), quantile(t.phases[i+1].times, 0.99)
		if around := (before + after) / 2; around > 0 {
			all = append(all, float64(quantile(p.times, 0.99))/float64(around))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// tails returns the median of the phases' p99 without faults and with them.
func (t *tally) tails() (quiet, chaos, quiet50, chaos50 time.Duration) {
	var q, c, q5, c5 []time.Duration
	for _, p := range t.phases {
		if len(p.times) == 0 {
			continue
		}
		if p.calm {
			q, q5 = append(q, quantile(p.times, 0.99)), append(q5, quantile(p.times, 0.5))
		} else {
			c, c5 = append(c, quantile(p.times, 0.99)), append(c5, quantile(p.times, 0.5))
		}
	}
	return quantile(q, 0.5), quantile(c, 0.5), quantile(q5, 0.5), quantile(c5, 0.5)
}

// slow reports whether the tails are longer with faults than they may be.
func (t *tally) slow(strict bool) bool {
	_, chaos, _, _ := t.tails()
	return chaos > floor && t.ratio() > mostRatio && (strict || t.unrest() <= restless)
}

// judge holds the tails against each other.
func (t *tally) judge(strict bool) {
	if t.slow(strict) {
		quiet, chaos, _, _ := t.tails()
		t.breach("healthy backends: with faults the p99 is %.2f × what it is without (medians of phases: %v and %v)", t.ratio(), chaos, quiet)
	}
}

// print prints the tables.
func (t *tally) print(short string) {
	fmt.Println("\n                                            processors used by          to healthy backends\n" +
		"phase      calls  faults   seconds  calls/s  gateway  ended  chaos   all           p50           p99")
	for _, p := range t.phases {
		seconds := p.took.Seconds()
		fmt.Printf("%-9s %6d  %6d  %8.1f  %7.0f  %7.2f  %5.2f  %5.2f  %4.2f  %12v  %12v\n", p.name, p.calls, p.faults, seconds, float64(p.calls)/seconds,
			p.work.gateway.Seconds()/seconds, p.work.ended.Seconds()/seconds, p.work.chaos.Seconds()/seconds, p.work.machine.Seconds()/seconds,
			quantile(p.times, 0.5).Round(10*time.Microsecond), quantile(p.times, 0.99).Round(10*time.Microsecond))
	}
	fmt.Printf("\noutcomes of %d calls%s\n", t.calls, short)
	table(t.outcomes)
	total, seconds := 0, 0.0
	for _, p := range t.phases {
		if !p.calm {
			total, seconds = total+p.faults, seconds+p.took.Seconds()
		}
	}
	if total > 0 {
		fmt.Printf("\nfaults: %d, one every %.1f ms; how the calls ended that carried them\n", total, 1000*seconds/float64(total))
		for _, kind := range sorted(t.faults) {
			var ends []string
			for _, o := range sorted(t.behind[kind]) {
				ends = append(ends, fmt.Sprintf("%s %d", o, t.behind[kind][o]))
			}
			fmt.Printf("  %6d  %-24s %s\n", t.faults[kind], kind, strings.Join(ends, ", "))
		}
	}
	spread("from a SIGKILL to the end of each call that was there", t.dead)
	spread("from a SIGKILL to the next process's first answer", t.back)
	quiet, chaos, quiet50, chaos50 := t.tails()
	if t.ratio() > 0 {
		fmt.Printf("\nhealthy backends, medians of phases:  p50 %v quiet, %v with faults;  p99 %v quiet, %v with faults;\n"+
			"p99 with faults against that of the quiet neighbours, median: %.2f × (at most %.0f ×, or %v)\n",
			quiet50.Round(10*time.Microsecond), chaos50.Round(10*time.Microsecond), quiet.Round(10*time.Microsecond), chaos.Round(10*time.Microsecond),
			t.ratio(), mostRatio, floor)
		if u := t.unrest(); u > restless {
			fmt.Printf("the quiet phases differ among themselves by %.1f × (quartiles of p99): the machine is busy, and the ratio is not judged without -strict\n", u)
		}
	}
}

// spread prints a few quantiles of all.
func spread(what string, all []time.Duration) {
	if len(all) > 0 {
		fmt.Printf("\n%s (%d): p50 %v, p99 %v, max %v\n", what, len(all), quantile(all, 0.5).Round(10*time.Microsecond),
			quantile(all, 0.99).Round(10*time.Microsecond), quantile(all, 1).Round(10*time.Microsecond))
	}
}

func table(counts map[string]int) {
	for _, k := range sorted(counts) {
		fmt.Printf("  %7d  %s\n", counts[k], k)
	}
}

// sorted are the keys, the most frequent first.
func sorted(counts map[string]int) (keys []string) {
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	return keys
}
