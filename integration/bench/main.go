// Command bench measures what the gateway adds to a call, and what it takes to have it there. Between a client
// and a server that do as little as possible it puts, in turn, nothing, a relay that only copies bytes (for
// HTTP: the reverse proxy of the standard library) and the gateway, and prints what each figure is of the
// relay's in the same round: times alone mean nothing on a machine that others use, too.
// docs/performance.md says how to read it.
//
//	go run ./integration/bench                       all of it
//	go run ./integration/bench -only stdio           what has that in its name (a regular expression)
//	go run ./integration/bench -quick                a smoke test; its figures mean little
//	go run ./integration/bench -all                  every axis with every other: long
//	go run ./integration/bench -also 'name=command'  another gateway, too: {backend} or {url} in its command line is the
//	                                     server, {listen}, {host} and {port} are where it listens
//
// It refuses to judge: it exits with 0 whatever the figures are.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// What bench starts of itself, by its first argument.
var roles = map[string]func(args []string) error{
	"backend": serveBackend,
	"relay":   serveRelay,
	"proxy":   serveProxy,
	"poster":  servePoster,
	"piper":   servePiper,
}

func main() {
	err := error(nil)
	if role := roles[strings.Join(os.Args[1:min(2, len(os.Args))], "")]; role != nil {
		err = role(os.Args[2:])
	} else {
		err = measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A plan is how much is done.
type plan struct {
	rounds   int           // of each way, in turn
	round    time.Duration // how long one takes on the relay, roughly
	inFlight int           // alone; 0 = all that there are
	bytes    int           // likewise
	starts   int
	sessions int // that are opened to see what one takes
	streams  int
	crowds   []int // sessions that are open besides
}

// A run is one run of bench.
type run struct {
	plan    plan
	dir     string // for files
	self    string // this program
	gateway string // the gateway's binary
	server  string // where the server over HTTP listens
	only    *regexp.Regexp
	others  []other
	report  report
}

func measure() error {
	r := &run{plan: plan{rounds: 31, round: 60 * time.Millisecond, starts: 31, sessions: 4000, streams: 1000, crowds: []int{0, 100, 9000}}}
	quick := flag.Bool("quick", false, "few rounds: a smoke test")
	all := flag.Bool("all", false, "every axis with every other")
	only := flag.String("only", "", "a `regular expression`: measure what has it in its name")
	out := flag.String("json", "", "write the figures to this `file`, too")
	flag.IntVar(&r.plan.rounds, "rounds", r.plan.rounds, "how often each way is measured, in turn")
	flag.IntVar(&r.plan.inFlight, "flight", 0, "measure with this many calls in flight alone")
	flag.IntVar(&r.plan.bytes, "bytes", 0, "measure with this many `bytes` each way alone")
	flag.StringVar(&r.gateway, "gateway", "", "the gateway's `binary`; default: build it")
	flag.Func("also", "another gateway, as `name=command` with {backend} or {url}, and {listen}, {host}, {port}", func(text string) error {
		name, command, ok := strings.Cut(text, "=")
		if !ok || !strings.Contains(command, "{backend}") && !strings.Contains(command, "{url}") {
			return fmt.Errorf("give it a name, =, and a command with {backend} or {url} in it")
		}
		r.others = append(r.others, other{name, command})
		return nil
	})
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: bench has flags alone; see -help", flag.Arg(0))
	}
	if *quick {
		r.plan.rounds, r.plan.round, r.plan.starts = 2, 5*time.Millisecond, 2
		r.plan.sessions, r.plan.streams, r.plan.crowds = 50, 20, []int{0, 10, 100}
	}
	var err error
	if r.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if r.dir, err = os.MkdirTemp("", "gateway-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.dir)
	if r.self, err = os.Executable(); err != nil {
		return err
	}
	r.report = report{w: os.Stdout, Machine: thisMachine()}
	m := r.report.Machine
	fmt.Printf("%s, %d cores, %s, %s\n", m.CPU, m.Cores, m.OS, m.Go)
	began := time.Now()
	if err := r.all(*all); err != nil {
		return err
	}
	if !*quick {
		r.report.judge(r.targets())
	}
	progress("took %v", time.Since(began).Round(time.Second))
	return r.report.write(*out)
}

// all measures everything that was asked for.
func (r *run) all(everything bool) error {
	built := filepath.Join(r.dir, "gateway")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", built, "./cmd/gateway")
	build.Stderr = os.Stderr
	if r.gateway == "" {
		r.gateway = built
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the gateway (run this in the project's folder): %w", err)
		}
	}
	var err error
	if r.server, err = place(); err != nil {
		return err
	}
	server, err := spawn(r.self, "backend", "-name", "b0", "-listen", r.server)
	if err != nil {
		return err
	}
	defer server.end()
	if err := listens(r.server); err != nil {
		return err
	}
	contests := r.contests()
	if everything {
		contests = r.everything()
	}
	for _, c := range contests {
		if !r.only.MatchString(c.name) {
			continue
		}
		if err := r.hold(c); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{neighbour, r.neighbour}, {starting, r.starting}, {merging, r.merging}, {idling, r.idling}, {size, r.size},
	} {
		if !everything && r.only.MatchString(part.name) {
			r.report.head(part.name)
			if err := part.measure(); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	return nil
}
