package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"mcpgateway/catalog"
)

// Names of the parts of a run that are not comparisons, and of their figures with targets.
const (
	partSlowBackend = "a slow backend next to a fast one"
	partStart       = "start"
	partCatalog     = "catalog of 200 backends, 5000 tools"
	partMemory      = "memory"
	partSize        = "size"

	besideSlow    = "p99 of the fast backend with 256 slow calls of 1 s ÷ p99 without"
	listTime      = "process start → complete tools/list, 20 backends, known catalogs"
	mergeTime     = "merge after one backend's list has changed"
	routeTime     = "route of a call"
	idleMemory    = "resident, 20 backends, 500 tools, idle"
	sessionMemory = "resident, of an idle HTTP session"
	streamMemory  = "resident, of an idle HTTP session with an open stream"
	binarySize    = "binary, stripped"
)

// measureSlowBackend calls a fast backend, one call at a time. In alternate rounds 256 calls of the
// same session, or no calls, are in flight at a slow backend. The responses of the slow backend are
// distributed over a second.
func (r *benchmark) measureSlowBackend() error {
	const others = 256
	o, err := r.programs.gatewayVariant("gateway",
		gatewayConfig{axis: axis{http1, stdio}, slow: true}).open()
	if err != nil {
		return err
	}
	defer o.close()
	slowTool := "slow_tool_0"
	fast := o.client.(*httpClient)
	n, err := r.callsPerRound([]*runningVariant{o}, 0, workloadOf(1, 32))
	if err != nil {
		return err
	}
	var with, without []round
	for range r.plan.rounds {
		busy := newHTTPClient(fast.address, fast.path)
		busy.session, busy.next = fast.session, fast.next+1_000_000
		stop, stopped := make(chan struct{}), make(chan error, 1)
		go func() { stopped <- busy.keepCalling(others, callSpec{slowTool, 32}, stop) }()
		time.Sleep(time.Second) // until all slow calls are in flight
		beside, err := o.round(n, workloadOf(1, 32))
		close(stop)
		if err := <-stopped; err != nil {
			return fmt.Errorf("slow backend: %w", err)
		}
		busy.close()
		if err != nil {
			return err
		}
		alone, err := o.round(n, workloadOf(1, 32))
		if err != nil {
			return err
		}
		with, without = append(with, beside), append(without, alone)
	}
	p99 := func(r round) float64 { return float64(r.p99) }
	r.report.addFigure("p99 without", median(without, p99)/1e3, "µs")
	r.report.addFigure("p99 with", median(with, p99)/1e3, "µs")
	r.report.addFigure(besideSlow, ratio(with, without, p99), "×")
	return nil
}

// measureCatalog measures a merge of the lists of 200 backends, as it happens after one backend has
// changed its list, and the lookup of a tool.
func (r *benchmark) measureCatalog() error {
	var all []catalog.Listing
	for i := range 200 {
		b := &backend{}
		b.makeTools(fmt.Sprint("b", i), 25)
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
	r.report.addFigure(mergeTime, float64(merge.NsPerOp())/1e6, "ms")
	r.report.addFigure(routeTime, float64(route.NsPerOp()), "ns")
	r.report.addFigure("allocations of a route", float64(route.AllocsPerOp()), "")
	return nil
}

// measureSize reads the size of the stripped binary.
func (r *benchmark) measureSize() error {
	info, err := os.Stat(r.programs.gateway)
	if err != nil {
		return err
	}
	r.report.addFigure(binarySize, float64(info.Size())/1e6, "MB")
	return nil
}

// measureStart measures the time until a gateway with many cached catalogs responds to its client.
func (r *benchmark) measureStart() error {
	s := r.programs.twentyBackends(stdio)
	command, _, err := r.programs.gatewayCommand(s)
	if err != nil {
		return err
	}
	var ups, hellos, lists []time.Duration
	for i := range r.plan.starts + 1 { // the first start writes the catalogs
		one, err := measureOneStart(command, s.toolsOfAll())
		if err != nil {
			return err
		}
		if i > 0 {
			ups, hellos, lists = append(ups, one.ping), append(hellos, one.initialize),
				append(lists, one.list)
		}
	}
	ms := func(all []time.Duration) float64 { return float64(quantile(all, 0.5)) / 1e6 }
	r.report.addFigure("process start → response to ping", ms(ups), "ms")
	r.report.addFigure("initialize → response", ms(hellos), "ms")
	r.report.addFigure(listTime, ms(lists), "ms")
	return nil
}

// startTimes are the times of one start.
type startTimes struct {
	ping, list time.Duration // time since the start of the process
	initialize time.Duration // time from the request to the response
}

func measureOneStart(command []string, tools int) (t startTimes, err error) {
	began := time.Now()
	p, err := startProcess(command...)
	if err != nil {
		return t, err
	}
	defer p.end()
	c := newStdioClient(p.in, p.out)
	if _, err := c.roundTrip(pingRequest); err != nil {
		return t, err
	}
	t.ping = time.Since(began)
	asked := time.Now()
	if _, err := c.roundTrip(initializeRequest); err != nil {
		return t, err
	}
	t.initialize = time.Since(asked)
	if _, err := c.roundTrip(initializedNotification); err != nil {
		return t, err
	}
	all, err := c.roundTrip(toolsListRequest)
	if err != nil {
		return t, err
	}
	t.list = time.Since(began)
	if n := bytes.Count(all, []byte(`"inputSchema"`)); n != tools {
		return t, fmt.Errorf("the list has %d tools, not %d", n, tools)
	}
	for i := range tools / 25 { // each call waits until its backend has started
		if _, err := c.makeCalls(1, 1, callSpec{fmt.Sprintf("b%d_tool_0", i), 32}); err != nil {
			return t, err
		}
	}
	return t, nil
}

// measureMemory measures the memory of an idle gateway, the memory per idle HTTP session, and the
// memory per HTTP session with an open stream.
func (r *benchmark) measureMemory() error {
	o, err := r.programs.gatewayVariant("gateway", r.programs.twentyBackends(http1)).open()
	if err != nil {
		return err
	}
	defer o.close()
	for i := range 20 { // wait until all backends have started
		if _, err := o.client.makeCalls(1, 1,
			callSpec{fmt.Sprintf("b%d_tool_0", i), 32}); err != nil {
			return err
		}
	}
	pid := o.measured.pid()
	empty := awaitStableMemory(pid)
	r.report.addFigure(idleMemory, float64(empty)/1e6, "MB")
	address := o.client.(*httpClient).address

	others := newHTTPClient(address, "/mcp")
	defer others.close()
	for range r.plan.sessions {
		if err := initialize(others.withoutSession()); err != nil {
			return err
		}
	}
	full := awaitStableMemory(pid)
	r.report.addFigure(sessionMemory, kibPerItem(full-empty, r.plan.sessions), "KiB")

	for range r.plan.streams {
		w := newHTTPClient(address, "/mcp")
		defer w.close()
		if err := initialize(w); err != nil {
			return err
		}
		if err := w.openStream(); err != nil {
			return err
		}
	}
	r.report.addFigure(streamMemory, kibPerItem(awaitStableMemory(pid)-full, r.plan.streams), "KiB")
	return nil
}

func kibPerItem(bytes, n int) float64 { return float64(bytes) / float64(n) / 1024 }
