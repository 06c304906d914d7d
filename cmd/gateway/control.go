package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/adminapi"
)

// A gatewayChoice says which of the running gateways a command is for.
type gatewayChoice struct {
	source *configSource
	one    string // flag --gateway: id, process id or configuration file
	all    bool   // flag --all
}

func (g *gatewayChoice) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.one, "gateway", "",
		"the gateway `ID`: its id, its process id, or its configuration file")
	cmd.Flags().BoolVar(&g.all, "all", false, "all gateways that run")
}

// A chosenGateway is a gateway that a command is for.
type chosenGateway struct {
	*adminapi.APIClient
	*adminapi.GatewayStatus
}

// name returns a text that identifies the gateway for a user.
func (g *chosenGateway) name() string {
	return fmt.Sprintf("%s (process %d, %s)", g.Gateway.ID, g.Gateway.PID,
		oneLine(whom(g.GatewayStatus)))
}

// hasBackend reports whether the configuration of the gateway has a backend.
func (g *chosenGateway) hasBackend(name string) bool {
	return slices.ContainsFunc(g.Backends,
		func(b adminapi.BackendStatus) bool { return b.Name == name })
}

// choose returns the gateways that have all these backends. It returns an error if there are none,
// or if there are several and the user has not chosen.
func (g *gatewayChoice) choose(ctx context.Context, names ...string) ([]chosenGateway, error) {
	found, dirs, err := findGateways(ctx, g.source)
	if err != nil {
		return nil, err
	}
	clients := make(map[string]*adminapi.APIClient)
	for _, r := range found {
		clients[r.ID] = r.Client()
	}
	var running, chosen []chosenGateway
	for _, r := range statusOf(ctx, found) {
		if r.Error != "" {
			fmt.Fprintf(g.source.err, "gateway: gateway %s %s\n", printable(r.ID), oneLine(r.Error))
			continue
		}
		one := chosenGateway{clients[r.ID], r.GatewayStatus}
		running = append(running, one)
		if g.matches(&one) && !slices.ContainsFunc(names,
			func(name string) bool { return !one.hasBackend(name) }) {
			chosen = append(chosen, one)
		}
	}
	switch {
	case len(running) == 0:
		return nil, errNoGateway(dirs)
	case len(chosen) == 0:
		return nil, g.errNotFound(running, names)
	case len(chosen) > 1 && !g.all:
		var lines []string
		for _, one := range chosen {
			lines = append(lines, one.name())
		}
		return nil, usageError{
			fmt.Errorf("several gateways match: %s", strings.Join(lines, "; ")),
			"choose one with --gateway ID, or all of them with --all",
		}
	}
	return chosen, nil
}

// matches reports whether the user has chosen the gateway, or has not chosen. A file that is named
// with --config chooses the gateways with this file.
func (g *gatewayChoice) matches(one *chosenGateway) bool {
	isFile := func(path string) bool {
		return one.Configuration.File != "" && isSameFile(path, one.Configuration.File)
	}
	switch {
	case g.one != "":
		return g.one == one.Gateway.ID || g.one == strconv.Itoa(one.Gateway.PID) || isFile(g.one)
	case g.source.path != "" && !g.all:
		return isFile(g.source.path)
	}
	return true
}

// errNotFound returns the error if none of the running gateways was chosen.
func (g *gatewayChoice) errNotFound(running []chosenGateway, names []string) error {
	var all, known []string
	for _, one := range running {
		all = append(all, one.name())
		if g.matches(&one) {
			for _, b := range one.Backends {
				known = append(known, b.Name)
			}
		}
	}
	if known == nil {
		what := "--gateway " + g.one
		if g.one == "" {
			what = "the configuration " + filepath.Clean(g.source.path)
		}
		return usageError{fmt.Errorf("no running gateway matches %s", oneLine(what)),
			"these run: " + strings.Join(all, "; ")}
	}
	slices.Sort(known)
	return usageError{
		fmt.Errorf("no running gateway has a backend named %s", strings.Join(names, ", ")),
		"the backends are: " + strings.Join(slices.Compact(known), ", "),
	}
}

// An actionVerb is a command that does something to a backend.
type actionVerb struct {
	action      adminapi.BackendAction
	done, short string
	long        string
}

var actionVerbs = []actionVerb{
	{adminapi.Restart, "restarted", "Restart a backend of a running gateway", `restart stops a backend of a running gateway and starts it again. Calls in flight end
first; calls that arrive meanwhile wait. It returns when the backend is ready or has failed,
and the exit code is 1 if it has failed.`},
	{adminapi.Stop, "stopped", "Stop a backend of a running gateway", `stop stops a backend of a running gateway, until "gateway start", a change of its entry
in the configuration, or the end of the gateway. Calls in flight end first; new calls fail,
and clients no longer see the tools of the backend.`},
	{adminapi.Start, "started", "Start a backend of a running gateway", `start starts a backend of a running gateway that was stopped, that has failed, or that
waits until somebody needs it. It returns when the backend is ready or has failed, and the
exit code is 1 if it has failed.`},
}

func actionCommand(c *cli, v actionVerb) *cobra.Command {
	choice := gatewayChoice{source: &c.source}
	cmd := &cobra.Command{
		Use:   string(v.action) + " BACKEND",
		Short: v.short,
		Long: v.long + `

If several running gateways have the backend, choose one with --gateway or all with --all.`,
		Args:              oneArg("the backend"),
		ValidArgsFunction: firstArgument(c.source.backendNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := choice.choose(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, g := range chosen {
				if oneErr := act(cmd.Context(), c, &g, v, args[0]); oneErr != nil {
					err = oneErr
				}
			}
			return err
		},
	}
	choice.addFlags(cmd)
	return cmd
}

// act does something to a backend, shows what it waits for, and prints the result.
func act(ctx context.Context, c *cli, g *chosenGateway, v actionVerb, name string) error {
	waiting, end := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() { showDrain(waiting, c, g, v, name) })
	result, err := g.Act(ctx, name, v.action)
	end()
	showing.Wait()
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return apiError(err)
	case result.Error != "":
		return fmt.Errorf("backend %s of gateway %s is %s: %s", name, g.Gateway.ID,
			result.Backend.State, strings.TrimPrefix(result.Error, "backend "+name+": "))
	}
	text := fmt.Sprintf("backend %s of gateway %s was %s", name, g.Gateway.ID, v.done)
	if v.action != adminapi.Stop {
		text += fmt.Sprintf(" and is %s, with %d tools", result.Backend.State,
			result.Backend.Lists.Tools)
	}
	_, err = fmt.Fprintln(c.out, oneLine(text))
	return err
}

// progressInterval is the time between two looks at a gateway that is doing something.
const progressInterval = 500 * time.Millisecond

// showDrain shows on stderr for how many calls of a backend the command waits, until ctx is done.
func showDrain(ctx context.Context, c *cli, g *chosenGateway, v actionVerb, name string) {
	p := progress{w: c.err, terminal: isTerminal(c.err), began: time.Now()}
	defer p.clear()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(progressInterval):
		}
		status, err := g.Status(ctx)
		if err != nil || !p.due() {
			continue
		}
		for _, b := range status.Backends {
			switch {
			case b.Name != name:
			case b.Calls.InFlight > 0 && v.action != adminapi.Start:
				p.print(fmt.Sprintf("waiting for %d calls of %s (at most 30 s)",
					b.Calls.InFlight, name))
			default:
				p.print(fmt.Sprintf("waiting for %s, which is %s", name, oneLine(b.State)))
			}
		}
	}
}

// apiError returns the error of a request to a gateway, with its hint.
func apiError(err error) error {
	if refused, is := errors.AsType[*adminapi.APIError](err); is {
		return hintedError{err, refused.Hint}
	}
	if errors.Is(err, adminapi.ErrEnded) {
		return hintedError{err, "gateway status shows the gateways that run"}
	}
	return err
}

func reloadCommand(c *cli) *cobra.Command {
	choice := gatewayChoice{source: &c.source}
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running gateway read its configuration again",
		Long: `reload makes a running gateway read its configuration file, and prints the changes that
it has applied. It waits until new and changed backends are ready or have failed. Failed
backends are tried again at once.

If the file has errors, reload prints them, nothing changes, and the exit code is 2.
"gateway check --diff" shows the changes without applying them.

    gateway reload
    gateway reload --gateway ~/gateway.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := choice.choose(cmd.Context())
			if err != nil {
				return err
			}
			for _, g := range chosen {
				if oneErr := reloadOne(cmd.Context(), c, &g, len(chosen) > 1); oneErr != nil {
					err = oneErr
				}
			}
			return err
		},
	}
	choice.addFlags(cmd)
	return cmd
}

// reloadOne reloads the configuration of one gateway and prints the result.
func reloadOne(ctx context.Context, c *cli, g *chosenGateway, named bool) error {
	r, err := g.Reload(ctx)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return apiError(err)
	}
	if named {
		fmt.Fprintf(c.out, "gateway %s\n", g.name())
	}
	if len(r.Problems) > 0 {
		for _, line := range r.Problems {
			printError(c.err, line, "")
		}
		return usageError{errors.New("the file was refused: the configuration in force stays"),
			"correct the file; gateway check shows the same errors"}
	}
	if len(r.Changes) == 0 {
		_, err = fmt.Fprintln(c.out, "nothing has changed")
	} else {
		err = printChangeRows(c.out, r.Changes)
	}
	if err == nil && len(r.NotReady) > 0 {
		err = hintedError{fmt.Errorf("not ready: %s", oneLine(strings.Join(r.NotReady, ", "))),
			"gateway status says why"}
	}
	return err
}
