package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// roundTrips compares calls through the gateway with calls through the relay,
// and with none between: one at a time, 32 bytes each way.
func (p plan) roundTrips() error {
	config := filepath.Join(p.dir, "one.yaml")
	text := fmt.Sprintf("state: none\nlog: {level: error}\naudit: {file: %q}\nbackends:\n  - {name: b, command: %q, args: [-backend, \"1\"], env: {BENCH_NAME: b}}\n",
		filepath.Join(p.dir, "audit.jsonl"), p.self)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	ways := []struct {
		name string
		cmd  *exec.Cmd
	}{
		{"direct", exec.Command(p.self, "-backend", "1")},
		{"relay", exec.Command(p.self, "-relay", p.self, "-backend", "1")},
		{"gateway", exec.Command(p.gateway, "-c", config)},
	}
	clients := make([]*client, len(ways))
	for i, w := range ways {
		w.cmd.Env = append(os.Environ(), "BENCH_NAME=b")
		w.cmd.Stderr = os.Stderr
		c, err := start(w.cmd)
		if err != nil {
			return err
		}
		defer c.end()
		if err := c.initialize(); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		clients[i] = c
	}
	medians := make([][]time.Duration, len(ways))
	tails := make([][]time.Duration, len(ways))
	for round := range p.rounds + 1 {
		for i, c := range clients {
			took, err := c.calls(p.calls, "b_tool_0")
			if err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			if round == 0 {
				continue // warming up
			}
			medians[i] = append(medians[i], quantile(took, 0.5))
			tails[i] = append(tails[i], quantile(took, 0.99))
		}
	}
	fmt.Printf("stdio → stdio, one call at a time, 32 bytes: median of %d rounds of %d calls, in turn\n", p.rounds, p.calls)
	relay := quantile(medians[1], 0.5)
	for i, w := range ways {
		m := quantile(medians[i], 0.5)
		fmt.Printf("  %-8s p50 %8v   p99 %8v   %.2f × relay\n", w.name, m, quantile(tails[i], 0.5), float64(m)/float64(relay))
	}
	return nil
}

// quantile returns the q-quantile of all, which it sorts.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(int(q*float64(len(all))), len(all)-1)]
}
