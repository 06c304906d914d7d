package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mcpgateway/catalog"
)

// Parts of a run that are no contests, and their figures that have targets.
const (
	neighbour = "a slow backend beside a fast one"
	starting  = "start"
	merging   = "catalog of 200 backends, 5000 tools"
	idling    = "memory"
	size      = "size"

	besideSlow    = "p99 of the fast one beside 256 calls of 1 s each, of that without"
	listTime      = "process start → complete tools/list, 20 backends, known catalogs"
	mergeTime     = "merge after one backend's list has changed"
	routeTime     = "route of a call"
	idleMemory    = "resident, 20 backends, 500 tools, idle"
	sessionMemory = "resident, of an idle HTTP session"
	streamMemory  = "resident, of an idle HTTP session with an open stream"
	binarySize    = "binary, stripped"
)

// neighbour calls a fast backend one call at a time, by turns while 256 calls are at a slow one, over the
// same session and pipe, and while none is. Their answers come spread over the second that each takes.
func (r *run) neighbour() error {
	const others = 256
	o, err := r.gatewayWith("gateway", setup{axis: axis{http1, stdio}, slow: true}).open(r)
	if err != nil {
		return err
	}
	defer o.close()
	slowTool := "slow_tool_0"
	fast := o.client.(*web)
	n, err := r.howMany([]*open{o}, 0, work1(1, 32))
	if err != nil {
		return err
	}
	var with, without []round
	for range r.plan.rounds {
		busy := newWeb(fast.address, fast.path)
		busy.session, busy.next = fast.session, fast.next+1_000_000
		stop, stopped := make(chan struct{}), make(chan error, 1)
		go func() { stopped <- busy.keepCalling(others, call{slowTool, 32}, stop) }()
		time.Sleep(time.Second) // until all are there
		beside, err := o.round(n, work1(1, 32))
		close(stop)
		if err := <-stopped; err != nil {
			return fmt.Errorf("the slow one: %w", err)
		}
		busy.close()
		if err != nil {
			return err
		}
		alone, err := o.round(n, work1(1, 32))
		if err != nil {
			return err
		}
		with, without = append(with, beside), append(without, alone)
	}
	p99 := func(r round) float64 { return float64(r.p99) }
	r.report.note("p99 without", middle(without, p99)/1e3, "µs")
	r.report.note("p99 with", middle(with, p99)/1e3, "µs")
	r.report.note(besideSlow, ratio(with, without, p99), "×")
	return nil
}

// merging measures what the gateway does when one of many backends lists other tools.
func (r *run) merging() error {
	var all []catalog.Listing
	for i := range 200 {
		b := &backend{}
		b.describe(fmt.Sprint("b", i), 25)
		items, err := catalog.ParsePage(catalog.Tools, []byte(`{"tools":[`+string(b.list)+`]}`))
		if err != nil {
			return err
		}
		l := catalog.Listing{Backend: fmt.Sprint("b", i)}
		l.Items[catalog.Tools] = items.Items
		all = append(all, l)
	}
	snapshot := catalog.Merge(catalog.Options{}, all)
	merge := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			catalog.Merge(catalog.Options{}, all)
		}
	})
	route := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			snapshot.Lookup(catalog.Tools, "b150_tool_7")
		}
	})
	r.report.note(mergeTime, float64(merge.NsPerOp())/1e6, "ms")
	r.report.note(routeTime, float64(route.NsPerOp()), "ns")
	r.report.note("allocations for it", float64(route.AllocsPerOp()), "")
	return nil
}

// size looks at the binary as it is released.
func (r *run) size() error {
	info, err := os.Stat(r.gateway)
	if err != nil {
		return err
	}
	r.report.note(binarySize, float64(info.Size())/1e6, "MB")
	return nil
}

// manyBackends are 20, whose catalogs are kept in a state directory of their own.
func (r *run) manyBackends(client string) setup {
	return setup{axis: axis{client, stdio}, backends: 20, state: filepath.Join(r.dir, "state")}
}

// starting measures how soon a gateway with many backends, whose catalogs it knows from an earlier run,
// answers its client.
func (r *run) starting() error {
	s := r.manyBackends(stdio)
	command, _, err := r.command(s)
	if err != nil {
		return err
	}
	var ups, hellos, lists []time.Duration
	for i := range r.plan.starts + 1 { // the first one writes the catalogs
		one, err := r.startOnce(command, s.all())
		if err != nil {
			return err
		}
		if i > 0 {
			ups, hellos, lists = append(ups, one.up), append(hellos, one.hello), append(lists, one.list)
		}
	}
	ms := func(all []time.Duration) float64 { return float64(quantile(all, 0.5)) / 1e6 }
	r.report.note("process start → ping answered", ms(ups), "ms")
	r.report.note("initialize → its answer", ms(hellos), "ms")
	r.report.note(listTime, ms(lists), "ms")
	return nil
}

// A start is how long one took.
type startTimes struct {
	up, list time.Duration // since the process was started
	hello    time.Duration // from the request to the answer
}

func (r *run) startOnce(command []string, tools int) (t startTimes, err error) {
	began := time.Now()
	p, err := spawn(command...)
	if err != nil {
		return t, err
	}
	defer p.end()
	c := newPipe(p.in, p.out)
	if _, err := c.ask(ping); err != nil {
		return t, err
	}
	t.up = time.Since(began)
	asked := time.Now()
	if _, err := c.ask(hello); err != nil {
		return t, err
	}
	t.hello = time.Since(asked)
	if _, err := c.ask(ready); err != nil {
		return t, err
	}
	all, err := c.ask(list)
	if err != nil {
		return t, err
	}
	t.list = time.Since(began)
	if n := bytes.Count(all, []byte(`"inputSchema"`)); n != tools {
		return t, fmt.Errorf("the list has %d tools, not %d", n, tools)
	}
	for i := range tools / 25 { // a call waits until its backend is up
		if _, err := c.calls(1, 1, call{fmt.Sprintf("b%d_tool_0", i), 32}); err != nil {
			return t, err
		}
	}
	return t, nil
}
