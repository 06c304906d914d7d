package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/catalog"
)

// defaultTimeout is how long check, tools and call wait for backends to start. Claude Code gives a
// server as long.
const defaultTimeout = 30 * time.Second

func (c *cli) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&c.timeout, "timeout", defaultTimeout, "how long to wait for backends to start; 0 = until each has started or failed")
}

func (c *cli) checkTimeout() error {
	if c.timeout < 0 {
		return usageError{fmt.Errorf("--timeout must not be negative"), "write a duration such as 90s, or 0 for no limit"}
	}
	return nil
}

// timeoutChannel returns a channel that gets a value when f.timeout is over; nil = never.
func (c *cli) timeoutChannel() <-chan time.Time {
	if c.timeout == 0 {
		return nil
	}
	return time.After(c.timeout)
}

// startingBackends returns the names of the backends that a call of a tool waits for until they have started: the
// tool's own, or all that may have it.
func (a *app) startingBackends(tool string) (names []string) {
	v := a.backends.View()
	route, found := v.Lookup(catalog.Tools, tool)
	for _, s := range enabled(a.backends.Status()) {
		if found && s.Name == route.Backend && s.State == backends.Starting || !found && !s.Settled {
			names = append(names, s.Name)
		}
	}
	return names
}

// awaitStart shows for which backends a call of a tool waits. It cancels the call when f.timeout is over
// and one is still starting. It returns when none is, or ctx is done.
func (c *cli) awaitStart(ctx context.Context, cancel context.CancelCauseFunc, a *app, tool string) {
	p := progress{w: c.err, terminal: isTerminal(c.err), began: time.Now()}
	defer p.clear()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	late := c.timeoutChannel()
	for {
		over := false
		select {
		case <-tick.C:
		case <-late:
			over = true
		case <-ctx.Done():
			return
		}
		names := strings.Join(a.startingBackends(tool), ", ")
		switch {
		case names == "":
			return
		case over:
			cancel(hintedError{fmt.Errorf("%s did not answer within %v", names, c.timeout), "raise that with --timeout; gateway check says more"})
			return
		case p.due():
			p.print(fmt.Sprintf("waiting for %s (%.0f s)", truncate(names, 60), time.Since(p.began).Seconds()))
		}
	}
}
