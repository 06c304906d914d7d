package main

import (
	"fmt"
	"slices"
)

var axes = []axis{{stdio, stdio}, {http1, http1}, {stdio, http1}, {http1, stdio}}

// Names of comparisons that have targets.
const (
	growthBackends = "growth: 1, 20, 200 backends of 25 tools, "
	growthTools    = "growth: 25, 500, 5000 tools of one backend, "
	growthSessions = "growth: further open sessions, "
)

var flights = []int{1, 4, 32, 256}

// comparisons returns the comparisons of a normal run.
func (r *benchmark) comparisons() []comparison {
	var all []comparison
	for _, a := range axes {
		work := []workload{}
		for _, n := range flights {
			work = append(work, workloadOf(n, 32))
		}
		work = append(work, workloadOf(1, 4<<10), workloadOf(1, 64<<10), workloadOf(1, 1<<20),
			workloadOf(32, 4<<10), workloadOf(4, 1<<20))
		all = append(all, comparison{a.String(), r.variants(a, gatewayConfig{axis: a}), work})
	}
	few := []workload{workloadOf(1, 32), workloadOf(32, 32)}
	for _, a := range []axis{{stdio, stdio}, {http1, http1}} {
		all = append(all, comparison{a.String() + ", no audit",
			r.variants(a, gatewayConfig{axis: a, noAudit: true}), few})
	}
	for _, a := range []axis{{stdio, stdio}, {http1, stdio}} {
		c := comparison{growthBackends + a.String(), []variant{r.programs.relayVariant(a)}, few}
		for _, n := range []int{1, 20, 200} {
			c.variants = append(c.variants, r.programs.gatewayVariant(fmt.Sprint(n, " backends"),
				gatewayConfig{axis: a, backends: n}))
		}
		all = append(all, c)
	}
	a := axis{stdio, stdio}
	c := comparison{growthTools + a.String(), []variant{r.programs.relayVariant(a)}, few}
	for _, n := range []int{25, 500, 5000} {
		c.variants = append(c.variants, r.programs.gatewayVariant(fmt.Sprint(n, " tools"),
			gatewayConfig{axis: a, tools: n}))
	}
	all = append(all, c)
	a = axis{http1, stdio}
	c = comparison{growthSessions + a.String(), []variant{r.programs.relayVariant(a)}, few}
	for _, n := range r.plan.openSessions {
		c.variants = append(c.variants, r.programs.gatewayVariant(fmt.Sprint(n, " sessions"),
			gatewayConfig{axis: a, sessions: n}))
	}
	return append(all, c)
}

func workloadOf(inFlight, size int) workload { return workload{inFlight, size} }

// variants returns all variants on an axis.
func (r *benchmark) variants(a axis, s gatewayConfig) []variant {
	var all []variant
	if a.client == a.server {
		all = append(all, r.programs.directVariant(a))
	}
	all = append(all, r.programs.relayVariant(a), r.programs.gatewayVariant("gateway", s))
	for _, o := range r.otherGateways {
		if o.axis() == a {
			all = append(all, r.programs.otherVariant(o))
		}
	}
	return all
}

// allComparisons returns comparisons with all combinations of transports, number of backends,
// audit, calls in flight and sizes. It omits several HTTP backends, and workloads that need too
// much memory (256 messages of 1 MiB).
func (r *benchmark) allComparisons() []comparison {
	var work []workload
	for _, n := range flights {
		for _, size := range []int{32, 4 << 10, 64 << 10, 1 << 20} {
			if n*size <= 64<<20 {
				work = append(work, workloadOf(n, size))
			}
		}
	}
	var all []comparison
	for _, a := range axes {
		for _, n := range []int{1, 20, 200} {
			if n > 1 && a.server == http1 {
				continue // all HTTP backends would be the same server
			}
			for _, noAudit := range []bool{false, true} {
				name := fmt.Sprintf("%s, %d backends", a, n)
				if noAudit {
					name += ", no audit"
				}
				all = append(all, comparison{name,
					r.variants(a, gatewayConfig{axis: a, backends: n, noAudit: noAudit}),
					slices.Clone(work)})
			}
		}
	}
	return all
}

// targets returns the targets for two cores, with an audit record for each call.
func targets(r *report) []target {
	var all []target
	for _, t := range []struct {
		axis           axis
		inFlight, size int
		name           string
		bound          float64
		unit           string
		atLeast        bool
		found          func(figures) float64
	}{
		{axis{stdio, stdio}, 1, 32, "p50", 1.15, "×", false, p50Ratio},
		{axis{stdio, stdio}, 32, 32, "calls per second", 0.65, "×", true, rateRatio},
		{axis{stdio, stdio}, 32, 32, "CPU per call", 3, "×", false, cpuRatio},
		{axis{stdio, stdio}, 1, 1 << 20, "p50", 1.5, "×", false, p50Ratio},
		{axis{http1, http1}, 1, 32, "p50", 1.1, "×", false, p50Ratio},
		{axis{http1, http1}, 32, 32, "calls per second", 1, "×", true, rateRatio},
		{axis{http1, http1}, 32, 32, "CPU per call", 1.2, "×", false, cpuRatio},
		{axis{http1, http1}, 32, 32, "resident", 24, "MB", false, residentMB},
		{axis{http1, http1}, 1, 1 << 20, "p50", 1.5, "×", false, p50Ratio},
		{axis{http1, stdio}, 1, 32, "p50", 1.25, "×", false, p50Ratio},
	} {
		f := r.find(t.axis.String(), workload{t.inFlight, t.size}, "gateway")
		all = append(all, target{Name: fmt.Sprintf("%s, %d in flight, %s: %s", t.axis, t.inFlight,
			bytesText(t.size), t.name), Bound: t.bound, Found: t.found(f), Unit: t.unit,
			AtLeast: t.atLeast})
	}
	for _, t := range []target{
		{Name: besideSlow, Bound: 1.5, Unit: "×"},
		{Name: mergeTime, Bound: 5, Unit: "ms"},
		{Name: routeTime, Bound: 200, Unit: "ns"},
		{Name: listTime, Bound: 25, Unit: "ms"},
		{Name: idleMemory, Bound: 25, Unit: "MB"},
		{Name: sessionMemory, Bound: 4, Unit: "KiB"},
		{Name: streamMemory, Bound: 40, Unit: "KiB"},
		{Name: binarySize, Bound: 20, Unit: "MB"},
	} {
		t.Found = r.value(t.Name)
		all = append(all, t)
	}
	return all
}

func p50Ratio(f figures) float64   { return f.P50Ratio }
func rateRatio(f figures) float64  { return f.RateRatio }
func cpuRatio(f figures) float64   { return f.CPURatio }
func residentMB(f figures) float64 { return float64(f.RSS) / 1e6 }
