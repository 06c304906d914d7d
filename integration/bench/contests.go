package main

import (
	"fmt"
	"slices"
)

var axes = []axis{{stdio, stdio}, {http1, http1}, {stdio, http1}, {http1, stdio}}

// Names of contests that have targets.
const (
	growthBackends = "how it grows: 1, 20, 200 backends of 25 tools, "
	growthTools    = "how it grows: 25, 500, 5000 tools of one backend, "
	growthSessions = "how it grows: other sessions that are open, "
)

var flights = []int{1, 4, 32, 256}

// contests are those of a run: one thing is changed at a time.
func (r *run) contests() []contest {
	var all []contest
	for _, a := range axes {
		work := []work{}
		for _, n := range flights {
			work = append(work, work1(n, 32))
		}
		work = append(work, work1(1, 4<<10), work1(1, 64<<10), work1(1, 1<<20), work1(32, 4<<10), work1(4, 1<<20))
		all = append(all, contest{a.String(), r.ways(a, setup{axis: a}), work})
	}
	few := []work{work1(1, 32), work1(32, 32)}
	for _, a := range []axis{{stdio, stdio}, {http1, http1}} {
		all = append(all, contest{a.String() + ", nothing recorded", r.ways(a, setup{axis: a, noAudit: true}), few})
	}
	for _, a := range []axis{{stdio, stdio}, {http1, stdio}} {
		c := contest{growthBackends + a.String(), []way{r.relay(a)}, few}
		for _, n := range []int{1, 20, 200} {
			c.ways = append(c.ways, r.gatewayWith(fmt.Sprint(n, " backends"), setup{axis: a, backends: n}))
		}
		all = append(all, c)
	}
	a := axis{stdio, stdio}
	c := contest{growthTools + a.String(), []way{r.relay(a)}, few}
	for _, n := range []int{25, 500, 5000} {
		c.ways = append(c.ways, r.gatewayWith(fmt.Sprint(n, " tools"), setup{axis: a, tools: n}))
	}
	all = append(all, c)
	a = axis{http1, stdio}
	c = contest{growthSessions + a.String(), []way{r.relay(a)}, few}
	for _, n := range r.plan.crowds {
		c.ways = append(c.ways, r.gatewayWith(fmt.Sprint(n, " sessions"), setup{axis: a, sessions: n}))
	}
	return append(all, c)
}

func work1(inFlight, size int) work { return work{inFlight, size} }

// ways are all that there are on an axis.
func (r *run) ways(a axis, s setup) []way {
	var all []way
	if a.client == a.server {
		all = append(all, r.direct(a))
	}
	all = append(all, r.relay(a), r.gatewayWith("gateway", s))
	for _, o := range r.others {
		if o.axis() == a {
			all = append(all, r.otherWay(o))
		}
	}
	return all
}

// everything is every axis with every other, but what does not fit into memory: 256 messages of 1 MiB.
func (r *run) everything() []contest {
	var work []work
	for _, n := range flights {
		for _, size := range []int{32, 4 << 10, 64 << 10, 1 << 20} {
			if n*size <= 64<<20 {
				work = append(work, work1(n, size))
			}
		}
	}
	var all []contest
	for _, a := range axes {
		for _, n := range []int{1, 20, 200} {
			if n > 1 && a.server == http1 {
				continue // as many servers over HTTP would be one and the same
			}
			for _, noAudit := range []bool{false, true} {
				name := fmt.Sprintf("%s, %d backends", a, n)
				if noAudit {
					name += ", nothing recorded"
				}
				all = append(all, contest{name, r.ways(a, setup{axis: a, backends: n, noAudit: noAudit}), slices.Clone(work)})
			}
		}
	}
	return all
}

// targets are what the gateway is held to, on two cores, with all calls recorded.
func (r *run) targets() []target {
	pipes, web := axis{stdio, stdio}.String(), axis{http1, http1}.String()
	of := func(contest string, inFlight, size int) row {
		return r.report.find(contest, work{inFlight, size}, "gateway")
	}
	all := []target{
		{Name: "stdio→stdio, 1 in flight, 32 B: p50", Bound: 1.25, Found: of(pipes, 1, 32).P50Ratio, Unit: "×"},
		{Name: "stdio→stdio, 32 in flight, 32 B: calls per second", Bound: 0.75, Found: of(pipes, 32, 32).RateRatio, Unit: "×", Least: true},
		{Name: "stdio→stdio, 1 in flight, 1 MiB each way: p50", Bound: 1.5, Found: of(pipes, 1, 1<<20).P50Ratio, Unit: "×"},
		{Name: "stdio→stdio, 32 in flight, 32 B: CPU per call", Bound: 2.5, Found: of(pipes, 32, 32).CPURatio, Unit: "×"},
		{Name: "HTTP→HTTP, 1 in flight, 32 B: p50", Bound: 1.25, Found: of(web, 1, 32).P50Ratio, Unit: "×"},
		{Name: "HTTP→HTTP, 32 in flight, 32 B: calls per second", Bound: 0.9, Found: of(web, 32, 32).RateRatio, Unit: "×", Least: true},
		{Name: "HTTP→HTTP, 32 in flight, 32 B: CPU per call", Bound: 2.5, Found: of(web, 32, 32).CPURatio, Unit: "×"},
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
		t.Found = r.report.value(t.Name)
		all = append(all, t)
	}
	return all
}
