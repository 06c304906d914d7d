package activity_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/activity"
	"mcpgateway/internal/callid"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func newCall(backend, tool string) *gateway.CallInfo {
	return &gateway.CallInfo{
		Seq:     callid.Next(),
		Session: "s1", Client: "c/1", ID: wire.ID("7"), Method: protocol.MethodToolsCall,
		Name: tool, Arguments: []byte(`{"a":1}`), Started: time.Now(),
		Route: catalog.Route{Backend: backend, Original: tool},
	}
}

// end ends a call that took dur.
func end(r *activity.Recorder, c *gateway.CallInfo, kind gateway.OutcomeKind, dur time.Duration) {
	c.BackendID, c.Sent = wire.ID("b7"), c.Started
	r.End(c, gateway.Outcome{Kind: kind, Dur: dur, Result: []byte(`{}`), Reason: "why"})
}

func observe(r *activity.Recorder, backend, tool string, kind gateway.OutcomeKind,
	dur time.Duration) {
	c := newCall(backend, tool)
	r.Begin(c)
	r.Routed(c)
	end(r, c, kind, dur)
}

// A call is visible in flight from its begin on, with its backend as soon as that is known, and
// afterwards as a recent call.
func TestCallIsVisibleInFlightAndAfterwards(t *testing.T) {
	r := activity.New()
	c := newCall("docs", "search")
	c.Route = catalog.Route{}
	r.Begin(c)
	all := r.InFlight()
	if len(all) != 1 || all[0].Name != "search" || all[0].Backend != "" || all[0].Ended ||
		all[0].ClientID != "7" {
		t.Fatalf("%+v", all)
	}
	c.Route = catalog.Route{Backend: "docs", Original: "find"}
	r.Routed(c)
	backends, sessions := r.InFlightCounts()
	if all := r.InFlight(); all[0].Backend != "docs" || all[0].Original != "find" ||
		backends["docs"] != 1 || sessions["s1"] != 1 {
		t.Fatalf("%+v %v %v", all, backends, sessions)
	}
	end(r, c, gateway.Timeout, time.Second)
	if all := r.InFlight(); len(all) != 0 {
		t.Fatalf("%+v", all)
	}
	recent := r.Recent(10, func(*activity.CallRecord) bool { return true })
	if len(recent) != 1 {
		t.Fatalf("%+v", recent)
	}
	got := recent[0]
	if !got.Ended || got.Outcome != gateway.Timeout || got.Dur != time.Second ||
		got.Reason != "why" || got.BackendID != "b7" || got.BytesIn != 7 || got.BytesOut != 2 {
		t.Errorf("%+v", got)
	}
	if found, ok := r.Find(got.Seq); !ok || found != got {
		t.Errorf("%+v %v", found, ok)
	}
	total := r.Total()
	if total.Calls() != 1 || total.Errors() != 1 || total.LastError.Outcome != gateway.Timeout ||
		total.BytesIn != 7 || total.BytesOut != 2 {
		t.Errorf("%+v", total)
	}
}

// A record that is used again for a new call does not change what Recent has returned before.
func TestRingKeepsTheLastCalls(t *testing.T) {
	r := activity.New()
	all := func(*activity.CallRecord) bool { return true }
	for i := range 1000 {
		observe(r, "docs", fmt.Sprint("t", i), gateway.OK, time.Millisecond)
	}
	before := r.Recent(5000, all)
	kept := slices.Clone(before)
	for i := range 1500 {
		observe(r, "docs", fmt.Sprint("u", i), gateway.OK, time.Millisecond)
	}
	if !slices.Equal(before, kept) {
		t.Error("a new call has changed a returned record")
	}
	after := r.Recent(5000, all)
	if len(after) != 1000 || after[0].Name != "u1499" || after[999].Name != "u500" {
		t.Errorf("%d %s %s", len(after), after[0].Name, after[len(after)-1].Name)
	}
	one := r.Recent(1, func(c *activity.CallRecord) bool { return c.Name == "u700" })
	if len(one) != 1 || one[0].Name != "u700" {
		t.Errorf("%+v", one)
	}
	if total := r.Total(); total.Calls() != 2500 {
		t.Error(total.Calls())
	}
}

// Names, ids and reasons of any size are kept as short copies.
func TestTextsAreTruncated(t *testing.T) {
	r := activity.New()
	long := strings.Repeat("x", 1<<20)
	c := newCall(long, long)
	c.Client, c.ID = long, wire.ID(`"`+long+`"`)
	r.Begin(c)
	r.Routed(c)
	r.End(c, gateway.Outcome{Kind: gateway.RPCError, Reason: long})
	got := r.Recent(1, func(*activity.CallRecord) bool { return true })[0]
	for _, text := range []string{got.Name, got.Original, got.Client, got.ClientID, got.Reason} {
		if len(text) > 600 || len(text) < 100 {
			t.Errorf("%d bytes", len(text))
		}
	}
}

// Clients choose names of tools and URIs. Neither makes the tables of counters grow without end.
func TestCountersAreBounded(t *testing.T) {
	r := activity.New()
	for i := range 3000 {
		observe(r, fmt.Sprint("backend", i%300), fmt.Sprint("tool", i), gateway.OK,
			time.Millisecond)
		unknown := newCall("", fmt.Sprint("unknown", i))
		r.Begin(unknown)
		r.End(unknown, gateway.Outcome{Kind: gateway.Rejected})
		read := newCall("backend1", fmt.Sprint("file:///", i))
		read.Method = protocol.MethodResourcesRead
		r.Begin(read)
		end(r, read, gateway.OK, time.Millisecond)
	}
	backends, entries := r.Backends(), r.Entries()
	if len(backends) > 201 || len(entries) > 505 {
		t.Fatalf("%d backends, %d entries", len(backends), len(entries))
	}
	var calls uint64
	for _, b := range backends {
		calls += b.Calls()
	}
	if other := backends[activity.Other]; calls != 9000 || other.Calls() == 0 {
		t.Errorf("%d calls, other %d", calls, other.Calls())
	}
	calls = 0
	for _, e := range entries {
		calls += e.Durations.Count
	}
	if calls != 6000 {
		t.Errorf("%d sent calls", calls)
	}
	unrouted := backends[""]
	if unrouted.Calls() != 3000 || unrouted.Errors() != 3000 || unrouted.LastHour.Count != 0 {
		t.Errorf("%+v", unrouted)
	}
}

// A quantile differs by at most 12 % from the exact one.
func TestQuantileErrorIsBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h activity.Histogram
	var exact []uint64
	for range 20_000 {
		v := uint64(16 * math.Pow(2, random.Float64()*27))
		exact = append(exact, v)
		h.Add(v)
	}
	slices.Sort(exact)
	for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		want := float64(exact[max(int(math.Ceil(q*20_000))-1, 0)])
		if got := float64(h.Quantile(q)); math.Abs(got-want) > 0.12*want {
			t.Errorf("q=%v: %v, want %v", q, got, want)
		}
	}
	for _, extreme := range []uint64{0, 1, 15, 1 << 40, math.MaxUint64} {
		h.Add(extreme)
	}
	if h.Quantile(0) > 16 || h.Quantile(1) < 1<<32 || h.Count != 20_005 {
		t.Errorf("%d %d %d", h.Quantile(0), h.Quantile(1), h.Count)
	}
	if n := h.CountBelow(1 << 10); n == 0 || n != countBelow(exact, 1<<10)+3 {
		t.Errorf("%d below 1024, want %d", n, countBelow(exact, 1<<10)+3)
	}
	if (&activity.Histogram{}).Quantile(0.5) != 0 {
		t.Error("an empty histogram has a quantile")
	}
}

func countBelow(all []uint64, bound uint64) (n uint64) {
	for _, v := range all {
		if v < bound {
			n++
		}
	}
	return n
}

// The quantiles are those of the last hour, and the series are those of the last 24 hours.
func TestLastHourAndSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := activity.New()
		observe(r, "docs", "slow", gateway.OK, 10*time.Second)
		time.Sleep(2 * time.Hour)
		observe(r, "docs", "fast", gateway.ToolError, 10*time.Millisecond)
		hour := r.Backends()["docs"].LastHour
		if p99 := hour.Quantile(0.99); hour.Count != 1 || p99 > 12_000 {
			t.Errorf("%d calls, p99 %d µs", hour.Count, p99)
		}
		total := r.Total()
		if n := total.LastHour.Count; n != 1 || total.Calls() != 2 {
			t.Errorf("%d calls in the last hour, %d in all", n, total.Calls())
		}
		points, backends := r.Series()
		if len(points) != 2 || points[0].Calls != 1 || points[1].Errors != 1 ||
			points[0].P99 < 8*time.Second || len(backends["docs"]) != 2 {
			t.Errorf("%+v %+v", points, backends)
		}
		time.Sleep(23 * time.Hour)
		if points, _ := r.Series(); len(points) != 1 || points[0].Errors != 1 {
			t.Errorf("%+v", points)
		}
		for range 48 * 60 {
			observe(r, "docs", "fast", gateway.OK, 10*time.Millisecond)
			time.Sleep(time.Minute)
		}
		points, backends = r.Series()
		if len(points) != 24*60-1 || len(backends["docs"]) != 24*6-1 {
			t.Errorf("%d points, %d of the backend", len(points), len(backends["docs"]))
		}
		hour = r.Backends()["docs"].LastHour
		if hour.Count < 50 || hour.Count > 60 {
			t.Errorf("%d calls in the last hour", hour.Count)
		}
	})
}

// A reader that does not read costs the calls nothing, and is told how many it has lost.
func TestSlowSubscriptionLosesCalls(t *testing.T) {
	r := activity.New()
	s := r.Subscribe(4)
	for range 10 {
		observe(r, "docs", "t", gateway.OK, time.Millisecond)
	}
	if first := <-s.C; first.Ended || first.Backend != "docs" {
		t.Errorf("%+v", first)
	}
	if second := <-s.C; !second.Ended {
		t.Errorf("%+v", second)
	}
	if lost := s.TakeLost(); lost != 16 {
		t.Errorf("%d lost, want 16", lost)
	}
	if lost := s.TakeLost(); lost != 0 {
		t.Errorf("%d lost again", lost)
	}
	s.Close()
	<-s.C
	<-s.C
	observe(r, "docs", "t", gateway.OK, time.Millisecond)
	select {
	case c := <-s.C:
		t.Errorf("a closed subscription got %+v", c)
	default:
	}
}

func TestConcurrentCalls(t *testing.T) {
	r := activity.New()
	s := r.Subscribe(8)
	defer s.Close()
	var work sync.WaitGroup
	for i := range 16 {
		work.Go(func() {
			for range 200 {
				observe(r, fmt.Sprint("b", i%3), "t", gateway.OK, time.Millisecond)
				r.InFlight()
			}
		})
		work.Go(func() {
			for range 20 {
				r.Total()
				r.Backends()
				r.Series()
				r.Recent(100, func(c *activity.CallRecord) bool { return c.Ended })
			}
		})
	}
	work.Wait()
	if total := r.Total(); total.Calls() != 3200 || len(r.InFlight()) != 0 {
		t.Errorf("%d calls, %d in flight", total.Calls(), len(r.InFlight()))
	}
}

// An idle recorder has no memory for calls, and a call in the steady state allocates nothing.
func TestCallDoesNotAllocate(t *testing.T) {
	r := activity.New()
	c := newCall("docs", "search")
	o := gateway.Outcome{Kind: gateway.OK, Dur: time.Millisecond}
	c.Sent, c.BackendID = c.Started, wire.ID("12")
	one := func() {
		r.Begin(c)
		r.Routed(c)
		r.End(c, o)
	}
	for range 3000 {
		one()
	}
	if n := testing.AllocsPerRun(2000, one); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCall measures what the recorder adds to a call; docs/performance.md says how much that
// may be.
func BenchmarkCall(b *testing.B) {
	for _, callers := range []int{1, 32} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			r := activity.New()
			b.ReportAllocs()
			b.SetParallelism(max(callers/2, 1))
			o := gateway.Outcome{Kind: gateway.OK, Dur: time.Millisecond}
			one := func(c *gateway.CallInfo) {
				r.Begin(c)
				r.Routed(c)
				r.End(c, o)
			}
			if callers == 1 {
				c := newCall("docs", "search")
				for b.Loop() {
					one(c)
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				c := newCall("docs", "search")
				c.Sent = c.Started
				for pb.Next() {
					one(c)
				}
			})
		})
	}
}
