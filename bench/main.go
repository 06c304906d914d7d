// Command bench measures what the gateway adds. It starts, in the same run, a
// program that only copies bytes and the gateway, both between one client and one
// backend that do as little as possible, and prints the ratio of the two: times
// alone mean nothing on a machine that others use, too. It also measures how soon a
// gateway with many backends answers its client, and what memory it takes.
//
//	go run ./bench            all of it
//	go run ./bench -quick     a smoke test; its figures mean little
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	quick := flag.Bool("quick", false, "few rounds: a smoke test")
	backend := flag.Int("backend", 0, "be the backend, with so many tools") // how bench starts itself
	relay := flag.Bool("relay", false, "be the relay to the command that follows")
	gateway := flag.String("gateway", "", "the gateway's `binary`; default: build it")
	flag.Parse()
	err := error(nil)
	switch {
	case *backend > 0:
		err = serveBackend(*backend)
	case *relay:
		err = serveRelay(flag.Args())
	default:
		err = measure(*gateway, *quick)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A plan is what is measured, and how often.
type plan struct {
	dir     string // for files
	self    string // this program
	gateway string
	rounds  int // of each way, in turn
	calls   int // of each round
	starts  int
}

func measure(gateway string, quick bool) error {
	dir, err := os.MkdirTemp("", "gateway-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := plan{dir: dir, self: self, gateway: gateway, rounds: 100, calls: 300, starts: 20}
	if quick {
		p.rounds, p.calls, p.starts = 2, 100, 2
	}
	if gateway == "" {
		p.gateway = filepath.Join(dir, "gateway")
		build := exec.Command("go", "build", "-o", p.gateway, "./cmd/gateway")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the gateway (run this in the project's folder): %w", err)
		}
	}
	if err := p.roundTrips(); err != nil {
		return err
	}
	return p.starting()
}
