package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/backends"
	"mcpgateway/internal/reload"
)

// A oneShot is the app of a command that prints results and ends: check, tools or call.
type oneShot struct {
	*app
	stdio
	timeout       startTimeout
	timedOutAfter time.Duration // timeout if the start of the backends has exceeded it, else 0
}

// openOneShot opens an app that serves no client and does not restart backends. It returns an error
// if the timeout is not valid.
func openOneShot(
	ctx context.Context, c *cli, timeout startTimeout, ignoreCache bool,
) (*oneShot, error) {
	if timeout < 0 {
		return nil, usageError{
			errors.New("--timeout must not be negative"),
			"use a duration such as 90s, or 0 for no limit",
		}
	}
	mode := runMode{noRestart: true, ignoreCache: ignoreCache}
	return openOneShotMode(ctx, c, timeout, mode)
}

// openOneShotMode is openOneShot with another mode.
func openOneShotMode(
	ctx context.Context, c *cli, timeout startTimeout, mode runMode,
) (*oneShot, error) {
	a, err := c.open(ctx, mode, c.source.quietLog, stdioOnly)
	if err != nil {
		return nil, err
	}
	return &oneShot{app: a, stdio: c.stdio, timeout: timeout}, nil
}

// A startTimeout limits the start of backends; 0 = no limit.
type startTimeout time.Duration

// defaultTimeout is the default limit for the start of backends in check, tools and call. Claude
// Code has the same limit for a server.
const defaultTimeout = 30 * time.Second

// addFlag adds the flag --timeout to a command.
func (t *startTimeout) addFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar((*time.Duration)(t), "timeout", defaultTimeout,
		"how long to wait for backends to start; 0 = until each has started or failed")
}

// channel returns a channel that receives a value after the timeout, nil if there is no timeout.
func (t startTimeout) channel() <-chan time.Time {
	if t == 0 {
		return nil
	}
	return time.After(time.Duration(t))
}

// withStartedBackends starts every enabled backend once, and calls do when each of them has listed
// its tools or failed, or after the timeout. Before the start it prints the path of the
// configuration file if showSource is true. It returns the error of do, or an error if the backends
// were not started or ctx is done.
func withStartedBackends(
	ctx context.Context, c *cli, timeout startTimeout, showSource bool, do func(*oneShot) error,
) error {
	o, err := openOneShot(ctx, c, timeout, true)
	if err != nil {
		return err
	}
	if _, err := reload.LoadCertificate(o.Loaded, o.Config.TLS); err != nil {
		o.close()
		return err
	}
	return o.run(ctx, func(ctx context.Context) error {
		if showSource {
			printSource(o.err, o.Source)
		}
		for _, w := range o.Warnings {
			fmt.Fprintf(o.err, "gateway: %s\n", maskedLine(o.mask, w))
		}
		if err := o.startBackends(ctx); err != nil {
			return err
		}
		return do(o)
	})
}

// startBackends starts the backends and waits until each has listed its tools or failed, for at
// most o.timeout. It shows the backends that it waits for on stderr. After the timeout it sets
// o.timedOutAfter and returns nil. If ctx is done, it returns errInterrupted.
func (o *oneShot) startBackends(ctx context.Context) error {
	o.backends.StartFor(o.client)
	p := progress{w: o.err, terminal: isTerminal(o.err), began: time.Now()}
	defer p.clear()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	timeout := o.timeout.channel()
	for {
		v := o.backends.View()
		if v.Complete {
			return nil
		}
		select {
		case <-v.Changed:
		case <-tick.C:
			p.show(enabled(o.backends.Status()))
		case <-timeout:
			o.timedOutAfter = time.Duration(o.timeout)
			return nil
		case <-ctx.Done():
			return errInterrupted
		}
	}
}

// printSource prints the path of the configuration file. It prints nothing if there is no file,
// because open has printed noFileMessage.
func printSource(w io.Writer, source string) {
	if source == "" {
		return
	}
	file, err := filepath.Abs(source)
	if err != nil {
		file = source
	}
	fmt.Fprintf(w, "gateway: configuration: %s\n", file)
}

// showSource reports whether a command prints the path of the configuration file: if stderr is a
// terminal and the output is not meant for a program, because a program may read stdout and stderr
// as one text.
func showSource(io stdio, machine bool) bool { return !machine && isTerminal(io.err) }

// enabled returns the backends that are not disabled.
func enabled(all []backends.Status) []backends.Status {
	return slices.DeleteFunc(all, func(s backends.Status) bool {
		return s.State == backends.Disabled
	})
}

// unsettled returns the names of the backends that have neither listed their tools nor failed.
func unsettled(all []backends.Status) (names []string) {
	for _, s := range all {
		if !s.Settled {
			names = append(names, s.Name)
		}
	}
	return names
}

func isHealthy(s backends.Status) bool {
	return s.Settled && s.State == backends.Ready && s.Err == nil
}

// problemText describes the problem of a backend that does not work.
func (o *oneShot) problemText(s backends.Status) string {
	if !s.Settled && o.timedOutAfter > 0 {
		problem := fmt.Sprintf("it did not answer within %v; increase --timeout", o.timedOutAfter)
		if s.Err != nil {
			problem += "; " + s.Err.Error()
		}
		return maskedLine(o.mask, problem)
	}
	if s.Err == nil {
		return string(s.State)
	}
	return maskedLine(o.mask, s.Err.Error())
}

// printFailedBackends prints the problems of the failed backends. After a timeout, a backend that
// is not settled has also failed. If only is not "", printFailedBackends considers only this
// backend. It returns an error if a backend has failed, or if no backend is enabled.
func (o *oneShot) printFailedBackends(only string) error {
	all := enabled(o.backends.Status())
	failed := 0
	for _, s := range all {
		if (s.Settled || o.timedOutAfter > 0) && !isHealthy(s) && (only == "" || only == s.Name) {
			failed++
			fmt.Fprintf(o.err, "gateway: backend %s: %s\n", s.Name, o.problemText(s))
		}
	}
	switch {
	case len(all) == 0:
		return noBackendError(o.app)
	case failed == 0:
		return nil
	case failed == len(all):
		return hintedError{fmt.Errorf("all backends failed"), "gateway check shows more"}
	}
	return hintedError{
		fmt.Errorf("%d of %d backends failed", failed, len(all)), "gateway check shows more",
	}
}
