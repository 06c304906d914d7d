//go:build unix

package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mcpgateway/internal/wire"
)

func TestTheSlopeOfALine(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var x, y []float64
	for i := range 360 {
		x = append(x, float64(i)/360)
		y = append(y, 50+3*x[i]+rng.NormFloat64())
	}
	slope, err := fitSlope(x, y)
	if math.Abs(slope-3) > 2*err || err > 1 {
		t.Errorf("slope %.2f ± %.2f, want 3", slope, err)
	}
}

// A figure that grows is detected.
func TestGrowthIsDetected(t *testing.T) {
	var samples []sample
	for i := range 200 {
		samples = append(samples, sample{Seconds: float64(i * 10),
			footprint: footprint{Goroutines: 100 + i/5, Heap: 5 << 20, Descriptors: 90 + i%3}})
	}
	for _, s := range slopesOf(samples, time.Minute) {
		if s.Grows != (s.What == "goroutines") {
			t.Errorf("%+v", s)
		}
	}
}

func TestTailsAreJudged(t *testing.T) {
	run := func(quiet, chaos, other time.Duration) *stats {
		ta := newStats(1)
		for i := range 9 {
			ta.beginPhase("quiet", 0).latencies = []time.Duration{quiet}
			if i%2 == 1 {
				ta.phases[len(ta.phases)-1].latencies[0] = other
			}
			ta.beginPhase("chaos", 60).latencies = []time.Duration{chaos}
		}
		for _, p := range ta.phases {
			p.calls = 1
		}
		ta.judge(false)
		return ta
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		quiet, chaos, other time.Duration
		broken              int
	}{
		"alike":                           {6 * ms, 9 * ms, 6 * ms, 0},
		"three times as long":             {6 * ms, 18 * ms, 6 * ms, 1},
		"below the floor":                 {ms, 4 * ms, ms, 0},
		"on a machine with other work":    {6 * ms, 90 * ms, 40 * ms, 0},
		"and on one with a little of it":  {6 * ms, 30 * ms, 8 * ms, 1},
		"quiet is longer than with fault": {20 * ms, 9 * ms, 20 * ms, 0},
	} {
		if got := run(c.quiet, c.chaos, c.other).broken; got != c.broken {
			t.Errorf("%s: %d broken", name, got)
		}
	}
}

// A seed repeats the calls, and their arguments are valid JSON.
func TestASeedReplaysItsDeeds(t *testing.T) {
	draw := func(seed uint64) (all []string) {
		s := newScript(seed, 3, "c3", allBackends(), true)
		for range 500 {
			d := s.next(faultPercent)
			if !json.Valid([]byte(d.args)) {
				t.Fatalf("no JSON: %s", d.args)
			}
			if _, err := wire.Parse([]byte(
				`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"x","arguments":` + d.args +
					`}}`)); err != nil {
				t.Fatalf("%v: %s", err, d.args)
			}
			all = append(all, d.backend.name+d.tool+d.args+d.clientFault)
		}
		return all
	}
	first, again, other := draw(7), draw(7), draw(8)
	if !slices.Equal(first, again) {
		t.Error("the same seed generates other calls")
	}
	if slices.Equal(first, other) {
		t.Error("a different seed generates the same calls")
	}
}

// Each kind of wrong response is reported.
func TestWrongResponsesAreReported(t *testing.T) {
	w := &harness{options: &options{seed: 1}, stats: newStats(1), backends: allBackends(),
		byName: map[string]*backend{}}
	for _, b := range w.backends {
		w.byName[b.name] = b
	}
	w.stats.beginPhase("test", 60)
	for name, test := range map[string]struct {
		backend string
		fault   string
		answers []string
		broken  int
	}{
		"right": {"s0", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got":ARGS}}}`}, 0},
		"twice": {"s0", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got":ARGS}}}`, `{"jsonrpc":"2.0","id":ID,"result":{}}`}, 1},
		"another space": {"s0", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got": {"nonce": 1}}}}`}, 1},
		"another's": {"s0", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s1","pid":0,"got":ARGS}}}`}, 1},
		"nobody's": {"s0", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got":ARGS}}}`, `{"jsonrpc":"2.0","id":"other","result":{}}`}, 1},
		"none": {"s0", "", nil, 1},
		"an error of a healthy backend": {"s0", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"backend s0: lost; outcome unknown"}}`}, 1},
		"an error of another": {"s4", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"backend s4: lost; outcome unknown"}}`}, 0},
		"one that names the wrong one": {"s4", "",
			[]string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"backend s5: lost; outcome unknown"}}`}, 1},
		"progress of another's": {"s0", "",
			[]string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99,"progress":1}}`, `{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got":ARGS}}}`}, 1},
		"a log message of another's": {"s0", "",
			[]string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"c9-1-x"}}`, `{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got":ARGS}}}`}, 1},
		"a question": {"s0", "", []string{`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`,
			`{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got":ARGS}}}`}, 1},
		"no message": {"s0", "", []string{`{`,
			`{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"stub":"s0","pid":0,"got":ARGS}}}`}, 1},
	} {
		c := newClient(w, 1, "http", w.backends, false)
		c.transport = scriptedResponses{c: c, lines: test.answers}
		before := w.stats.broken
		d := c.script.echo(w.byName[test.backend])
		c.perform(t.Context(), w.stats.phases[0], d)
		if got := w.stats.broken - before; got != test.broken {
			t.Errorf("%s: %d broken, not %d", name, got, test.broken)
		}
	}
}
