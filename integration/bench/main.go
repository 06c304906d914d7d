// Command bench measures the time that the gateway adds to a call, and the resources that the
// gateway needs. The client and the server do as little work as possible. They are connected in
// several ways, in turn: directly, through a relay that only copies bytes (for HTTP: the reverse
// proxy of the standard library), and through the gateway. bench prints the ratio of each figure to
// the figure of the relay in the same round, because absolute times mean little on a shared
// machine. docs/performance.md describes the figures.
//
//	go run ./integration/bench                       everything
//	go run ./integration/bench -only stdio           parts whose name matches a regular expression
//	go run ./integration/bench -quick                a smoke test; its figures mean little
//	go run ./integration/bench -all                  all combinations of parameters: long
//	go run ./integration/bench -also 'name=command'  another gateway; its command line contains
//	                                                 {backend} or {url} for the server, and
//	                                                 {listen}, {host} or {port} for its address
//
// The exit status does not depend on the figures.
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

// roles are the programs that bench starts from its own binary, by their first argument.
var roles = map[string]func(args []string) error{
	"backend":       serveBackend,
	"relay":         serveRelay,
	"proxy":         serveProxy,
	"stdio-to-http": serveStdioToHTTP,
	"http-to-stdio": serveHTTPToStdio,
}

func main() {
	err := error(nil)
	if role := roles[strings.Join(os.Args[1:min(2, len(os.Args))], "")]; role != nil {
		err = role(os.Args[2:])
	} else {
		err = runBenchmark()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options determine the measurements.
type options struct {
	rounds       int           // rounds per variant
	roundTime    time.Duration // approximate time of a round of the reference
	inFlight     int           // measure only with this number of calls in flight; 0 = each number
	bytes        int           // measure only with this size; 0 = each size
	starts       int           // measured starts of the gateway
	sessions     int           // number of idle sessions whose memory is measured
	streams      int           // number of sessions with an open stream whose memory is measured
	openSessions []int         // numbers of further sessions
}

// A benchmark is one run of bench.
type benchmark struct {
	plan          options
	programs      programs
	only          *regexp.Regexp
	otherGateways []otherGateway
	report        report
}

func runBenchmark() error {
	r := &benchmark{plan: options{rounds: 31, roundTime: 60 * time.Millisecond, starts: 31,
		sessions: 4000, streams: 1000, openSessions: []int{0, 100, 9000}}}
	quick := flag.Bool("quick", false, "run few rounds: a smoke test")
	all := flag.Bool("all", false, "measure all combinations of parameters")
	only := flag.String("only", "", "measure only parts whose name matches this `regexp`")
	out := flag.String("json", "", "also write the figures to this `file`")
	flag.IntVar(&r.plan.rounds, "rounds", r.plan.rounds, "number of rounds of each variant")
	flag.IntVar(&r.plan.inFlight, "flight", 0, "measure only with this many calls in flight")
	flag.IntVar(&r.plan.bytes, "bytes", 0,
		"measure only with this many `bytes` in argument and result")
	flag.StringVar(&r.programs.gateway, "gateway", "", "the gateway's `binary`; default: build it")
	flag.Func("also",
		"also measure another gateway: `name=command` with {backend} or {url}, and {listen}, {host}, {port}", func(text string) error {
			name, command, ok := strings.Cut(text, "=")
			if !ok || !strings.Contains(command, "{backend}") &&
				!strings.Contains(command, "{url}") {
				return fmt.Errorf("expected name=command, with {backend} or {url} in the command")
			}
			r.otherGateways = append(r.otherGateways, otherGateway{name, command})
			return nil
		})
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: see -help", flag.Arg(0))
	}
	if *quick {
		r.plan.rounds, r.plan.roundTime, r.plan.starts = 2, 5*time.Millisecond, 2
		r.plan.sessions, r.plan.streams, r.plan.openSessions = 50, 20, []int{0, 10, 100}
	}
	var err error
	if r.only, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if r.programs.dir, err = os.MkdirTemp("", "gateway-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.programs.dir)
	if r.programs.self, err = os.Executable(); err != nil {
		return err
	}
	r.report = report{w: os.Stdout, Machine: thisMachine()}
	m := r.report.Machine
	fmt.Printf("%s, %d cores, %s, %s\n", m.CPU, m.Cores, m.OS, m.Go)
	began := time.Now()
	if err := r.runAll(*all); err != nil {
		return err
	}
	if !*quick {
		r.report.judge(targets(&r.report))
	}
	progress("took %v", time.Since(began).Round(time.Second))
	return r.report.write(*out)
}

// runAll runs the comparisons and parts that -only selects. If everything is true, it runs
// allComparisons and no parts.
func (r *benchmark) runAll(everything bool) error {
	built := filepath.Join(r.programs.dir, "gateway")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", built,
		"./cmd/gateway")
	build.Stderr = os.Stderr
	if r.programs.gateway == "" {
		r.programs.gateway = built
		if err := build.Run(); err != nil {
			return fmt.Errorf("cannot build the gateway (bench must run in the root of the repository): %w",
				err)
		}
	}
	var err error
	if r.programs.server, err = freeAddress(); err != nil {
		return err
	}
	server, err := startProcess(r.programs.self, "backend", "-name", "b0", "-listen", r.programs.server)
	if err != nil {
		return err
	}
	defer server.end()
	if err := awaitListening(r.programs.server); err != nil {
		return err
	}
	all := r.comparisons()
	if everything {
		all = r.allComparisons()
	}
	for _, c := range all {
		if !r.only.MatchString(c.name) {
			continue
		}
		if err := r.runComparison(c); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{partSlowBackend, r.measureSlowBackend}, {partStart, r.measureStart},
		{partCatalog, r.measureCatalog}, {partMemory, r.measureMemory}, {partSize, r.measureSize},
	} {
		if !everything && r.only.MatchString(part.name) {
			r.report.printHeading(part.name)
			if err := part.measure(); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	return nil
}
