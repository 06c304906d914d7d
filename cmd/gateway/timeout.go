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

// defaultTimeout is the default limit for the start of backends in check, tools and call. Claude
// Code has the same limit for a server.
const defaultTimeout = 30 * time.Second

func (c *cli) timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&c.timeout, "timeout", defaultTimeout,
		"how long to wait for backends to start; 0 = until each has started or failed")
}

func (c *cli) checkTimeout() error {
	if c.timeout < 0 {
		return usageError{
			fmt.Errorf("--timeout must not be negative"),
			"use a duration such as 90s, or 0 for no limit",
		}
	}
	return nil
}

// timeoutChannel returns a channel that receives a value after c.timeout, nil if there is no
// timeout.
func (c *cli) timeoutChannel() <-chan time.Time {
	if c.timeout == 0 {
		return nil
	}
	return time.After(c.timeout)
}

// startingBackends returns the names of the starting backends that a call of a tool waits for: the
// backend of the tool or, if the tool is unknown, all backends that may still list it.
func (a *app) startingBackends(tool string) (names []string) {
	v := a.backends.View()
	route, found := v.Lookup(catalog.Tools, tool)
	for _, s := range enabled(a.backends.Status()) {
		isOwn := found && s.Name == route.Backend
		if isOwn && s.State == backends.Starting || !found && !s.Settled {
			names = append(names, s.Name)
		}
	}
	return names
}

// awaitStart shows the backends that a call of a tool waits for. It cancels the call if one of
// these backends is still starting after c.timeout. It returns when none of these backends is
// starting, or ctx is done.
func (c *cli) awaitStart(ctx context.Context, cancel context.CancelCauseFunc, a *app, tool string) {
	p := progress{w: c.err, terminal: isTerminal(c.err), began: time.Now()}
	defer p.clear()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	timeout := c.timeoutChannel()
	for {
		timedOut := false
		select {
		case <-tick.C:
		case <-timeout:
			timedOut = true
		case <-ctx.Done():
			return
		}
		names := strings.Join(a.startingBackends(tool), ", ")
		switch {
		case names == "":
			return
		case timedOut:
			cancel(hintedError{
				fmt.Errorf("%s did not answer within %v", names, c.timeout),
				"increase --timeout; gateway check shows more",
			})
			return
		case p.due():
			p.print(fmt.Sprintf("waiting for %s (%.0f s)",
				truncate(names, 60), time.Since(p.began).Seconds()))
		}
	}
}
