//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// stats contains the counts and times of a run.
type stats struct {
	seed uint64

	mu              sync.Mutex
	calls           int
	outcomes        map[string]int // number of calls, by outcome
	faults          map[string]int // number of faults, by kind
	outcomesByFault map[string]map[string]int
	phases          []*phase
	broken          int             // number of broken promises
	details         []string        // descriptions of the first broken promises
	timesToError    []time.Duration // from SIGKILL to the end of each call in flight
	timesToRecovery []time.Duration // from SIGKILL to the first response of the next process
}

// A phase is a part of a run, with faults or without.
type phase struct {
	name      string
	calm      bool
	share     int // percentage of faulty calls to backends that are not exempt
	began     time.Time
	took      time.Duration
	work      processorTimes // processor times used in the phase
	calls     int
	faults    int
	latencies []time.Duration // of echo calls to healthy backends, by well-behaved clients
}

func newStats(seed uint64) *stats {
	return &stats{seed: seed, outcomes: make(map[string]int), faults: make(map[string]int),
		outcomesByFault: make(map[string]map[string]int)}
}

func (t *stats) beginPhase(name string, share int) *phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &phase{name: name, calm: share == 0, share: share, began: time.Now()}
	t.phases = append(t.phases, p)
	return p
}

func (p *phase) finish() { p.took = time.Since(p.began) }

// countCall counts a call of a phase. If timed is true, took is recorded as a latency.
func (t *stats) countCall(p *phase, fault, outcome string, took time.Duration, timed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	p.calls++
	t.outcomes[outcome]++
	if timed {
		p.latencies = append(p.latencies, took)
	}
	if fault != "" {
		if t.outcomesByFault[fault] == nil {
			t.outcomesByFault[fault] = make(map[string]int)
		}
		t.outcomesByFault[fault][outcome]++
	}
}

// countFault counts an injected fault.
func (t *stats) countFault(kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[kind]++
	t.phases[len(t.phases)-1].faults++
}

// callCount returns the number of calls that have ended.
func (t *stats) callCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls
}

// breachCount returns the number of broken promises.
func (t *stats) breachCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

const maxDetails = 20

// addTimeToError adds the time from the kill of a backend to the end of a call in flight there.
func (t *stats) addTimeToError(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timesToError = append(t.timesToError, d)
}

// addTimeToRecovery adds the time from the kill of a backend to its next response.
func (t *stats) addTimeToRecovery(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timesToRecovery = append(t.timesToRecovery, d)
}

// breach counts and prints a broken promise.
func (t *stats) breach(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken++
	if len(t.details) < maxDetails {
		text := fmt.Sprintf("%s %s", time.Now().Format("15:04:05.000"),
			fmt.Sprintf(format, args...))
		t.details = append(t.details, text)
		fmt.Println("BROKEN:", text)
	}
}

// quantile returns the q-quantile of all. It sorts all.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}

// The p99 of healthy backends with faults may be at most maxRatio times the p99 without faults.
// Below latencyFloor the ratio is not judged, because it depends on the scheduler of the machine.
const (
	maxRatio      = 2.0
	latencyFloor  = 5 * time.Millisecond
	maxCalmSpread = 2.0
)

// calmSpread returns the ratio of the upper to the lower quartile of the p99 of the calm phases. If
// it exceeds maxCalmSpread, the machine is busy with other work, and any two phases could differ by
// a factor of two.
func (t *stats) calmSpread() float64 {
	var all []time.Duration
	for _, p := range t.phases {
		if p.calm && len(p.latencies) > 0 {
			all = append(all, quantile(p.latencies, 0.99))
		}
	}
	return float64(quantile(all, 0.75)) / float64(max(quantile(all, 0.25), 1))
}

// ratio returns, as the median over the phases with faults, the ratio of the p99 of a phase to the
// mean p99 of the calm phases before and after it. It compares neighbouring phases, because other
// load on the machine changes from minute to minute. It uses the median, so that a single bad phase
// does not determine the result.
func (t *stats) ratio() float64 {
	var all []float64
	for i, p := range t.phases {
		if p.calm || i == 0 || i+1 >= len(t.phases) || len(p.latencies) == 0 {
			continue
		}
		before, after := quantile(t.phases[i-1].latencies, 0.99),
			quantile(t.phases[i+1].latencies, 0.99)
		if around := (before + after) / 2; around > 0 {
			all = append(all, float64(quantile(p.latencies, 0.99))/float64(around))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// tails returns the medians of the p99, and of the p50, of the phases without and with faults.
func (t *stats) tails() (quiet, chaos, quiet50, chaos50 time.Duration) {
	var q, c, q5, c5 []time.Duration
	for _, p := range t.phases {
		if len(p.latencies) == 0 {
			continue
		}
		if p.calm {
			q, q5 = append(q, quantile(p.latencies, 0.99)), append(q5, quantile(p.latencies, 0.5))
		} else {
			c, c5 = append(c, quantile(p.latencies, 0.99)), append(c5, quantile(p.latencies, 0.5))
		}
	}
	return quantile(q, 0.5), quantile(c, 0.5), quantile(q5, 0.5), quantile(c5, 0.5)
}

// isTooSlow reports whether the p99 with faults is too high.
func (t *stats) isTooSlow(strict bool) bool {
	_, chaos, _, _ := t.tails()
	return chaos > latencyFloor && t.ratio() > maxRatio &&
		(strict || t.calmSpread() <= maxCalmSpread)
}

// judge counts a p99 that is too high as a broken promise.
func (t *stats) judge(strict bool) {
	if t.isTooSlow(strict) {
		quiet, chaos, _, _ := t.tails()
		t.breach(
			"healthy backends: the p99 with faults is %.2f × the p99 without (medians of phases: %v and %v)", t.ratio(), chaos, quiet)
	}
}

// print prints the tables of phases, outcomes and faults.
func (t *stats) print(short string) {
	fmt.Println(
		"\n                                            processors used by          to healthy backends\n" +
			"phase      calls  faults   seconds  calls/s  gateway  ended  chaos   all           p50           p99")
	for _, p := range t.phases {
		seconds := p.took.Seconds()
		fmt.Printf("%-9s %6d  %6d  %8.1f  %7.0f  %7.2f  %5.2f  %5.2f  %4.2f  %12v  %12v\n", p.name,
			p.calls, p.faults, seconds, float64(p.calls)/seconds,
			p.work.gateway.Seconds()/seconds, p.work.ended.Seconds()/seconds,
			p.work.chaos.Seconds()/seconds, p.work.machine.Seconds()/seconds,
			quantile(p.latencies, 0.5).Round(10*time.Microsecond),
			quantile(p.latencies, 0.99).Round(10*time.Microsecond))
	}
	fmt.Printf("\noutcomes of %d calls%s\n", t.calls, short)
	printCounts(t.outcomes)
	total, seconds := 0, 0.0
	for _, p := range t.phases {
		if !p.calm {
			total, seconds = total+p.faults, seconds+p.took.Seconds()
		}
	}
	if total > 0 {
		fmt.Printf("\nfaults: %d, one every %.1f ms; outcomes of the calls that carried them\n",
			total, 1000*seconds/float64(total))
		for _, kind := range byFrequency(t.faults) {
			var ends []string
			for _, o := range byFrequency(t.outcomesByFault[kind]) {
				ends = append(ends, fmt.Sprintf("%s %d", o, t.outcomesByFault[kind][o]))
			}
			fmt.Printf("  %6d  %-24s %s\n", t.faults[kind], kind, strings.Join(ends, ", "))
		}
	}
	printQuantiles("from SIGKILL to the end of each call in flight", t.timesToError)
	printQuantiles("from SIGKILL to the first response of the next process", t.timesToRecovery)
	quiet, chaos, quiet50, chaos50 := t.tails()
	if t.ratio() > 0 {
		fmt.Printf(
			"\nhealthy backends, medians of phases:  p50 %v quiet, %v with faults;  p99 %v quiet, %v with faults;\n"+
				"p99 with faults to that of the quiet neighbours, median: %.2f × (limit %.0f ×, or %v)\n",
			quiet50.Round(10*time.Microsecond), chaos50.Round(10*time.Microsecond),
			quiet.Round(10*time.Microsecond), chaos.Round(10*time.Microsecond),
			t.ratio(), maxRatio, latencyFloor)
		if u := t.calmSpread(); u > maxCalmSpread {
			fmt.Printf(
				"the quiet phases differ by %.1f × (quartiles of p99): the machine is busy; the ratio is judged only with -strict\n", u)
		}
	}
}

// printQuantiles prints a few quantiles of all.
func printQuantiles(what string, all []time.Duration) {
	if len(all) > 0 {
		fmt.Printf("\n%s (%d): p50 %v, p99 %v, max %v\n", what, len(all),
			quantile(all, 0.5).Round(10*time.Microsecond),
			quantile(all, 0.99).Round(10*time.Microsecond),
			quantile(all, 1).Round(10*time.Microsecond))
	}
}

func printCounts(counts map[string]int) {
	for _, k := range byFrequency(counts) {
		fmt.Printf("  %7d  %s\n", counts[k], k)
	}
}

// byFrequency returns the keys of counts, the most frequent first.
func byFrequency(counts map[string]int) (keys []string) {
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
