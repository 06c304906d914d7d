package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/text"
)

func approveCommand(c *cli) *cobra.Command {
	yes, principalName := false, ""
	var timeout startTimeout
	cmd := &cobra.Command{
		Use:   "approve [BACKEND]",
		Short: "Show new and changed tools, and approve them",
		Long: `approve starts every backend once, and compares the tools of all backends, or
of BACKEND, with the approved ones in the lock file beside the configuration (gateway.lock for
gateway.yaml). It shows new, changed and removed tools field by field, and names of tools
that belong to another backend than before. On a terminal it then asks whether to approve
them. A running gateway applies an approval at once.

Without a terminal and without --yes, approve only shows the changes. The exit code is 1 if
there are changes that are not approved, or if a backend has failed; the approvals of a
backend that has failed stay as they are. Backends with tools.pin: off are left out.

With oauth.per: principal, each client may have other tools. approve compares those of the
login of the gateway, or with --principal those of a client. Tools that are not listed for
it stay approved.

    gateway approve            # all backends
    gateway approve docs --yes # approve all changes of the backend docs`,
		Args: optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			only := ""
			if len(args) > 0 {
				only = args[0]
			}
			return approve(cmd.Context(), c, timeout, only, principalName, yes)
		},
	}
	timeout.addFlag(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "approve all changes without a question")
	addPrincipalFlag(cmd, &c.source, &principalName)
	cmd.ValidArgsFunction = firstArgument(c.source.backendNames)
	return cmd
}

// approve runs the command approve.
func approve(
	ctx context.Context, c *cli, timeout startTimeout, only, principalName string, yes bool,
) error {
	o, err := openOneShotMode(ctx, c, timeout, runMode{noRestart: true, ignoreCache: true,
		ignoreLock: true, loginAs: principalName})
	if err != nil {
		return err
	}
	return o.run(ctx, func(ctx context.Context) error {
		r := toolReview{oneShot: o, path: pins.PathOf(o.Source), only: only,
			command: approveCommandLine(&c.source, only, principalName)}
		if err := r.prepare(); err != nil {
			return err
		}
		if principalName != "" && !slices.ContainsFunc(r.targets,
			func(name string) bool { return r.perPrincipal[name] }) {
			return errNoOwnLogins
		}
		printSource(o.err, o.Source)
		for _, w := range o.Warnings {
			fmt.Fprintf(o.err, "gateway: %s\n", maskedLine(o.mask, w))
		}
		if err := o.startBackends(ctx); err != nil {
			return err
		}
		return r.run(ctx, yes)
	})
}

// approveCommandLine returns the command line that approves what a review with these arguments
// shows.
func approveCommandLine(source *configSource, only, principalName string) string {
	line := "gateway approve"
	if only != "" {
		line += " " + text.ShellWord(only)
	}
	line += source.flag()
	if principalName != "" {
		line += " --principal " + text.ShellWord(principalName)
	}
	return line + " --yes"
}

var errNoOwnLogins = usageError{errors.New("none of the backends has a login for each client"),
	"leave --principal out, or set oauth.per: principal"}

// A toolReview compares the tools of backends with the lock file. The lock file has no effect on
// the backends of the review, so that the names are those after an approval.
type toolReview struct {
	*oneShot
	path    string // of the lock file
	command string // that approves the changes without a question
	only    string // backend, "" = all
	lock    *pins.Lock
	targets []string // backends to compare
	// backends with oauth.per: principal, whose tools may be those of some clients only
	perPrincipal map[string]bool
	changes      []toolChanges
}

// A toolChanges contains the differences between the tools of a backend and the lock file.
type toolChanges struct {
	backend string
	gone    bool // it is not in the configuration
	isNew   bool // the lock file has no entry for it
	was, is pins.Tools
	names   []string       // the names that belong to it
	moved   []catalog.Move // those that belonged to other backends
}

// isEmpty reports whether an approval would not change the lock file.
func (c *toolChanges) isEmpty(l *pins.Lock) bool {
	if c.gone || c.isNew || len(c.was) != len(c.is) {
		return false
	}
	for name, is := range c.is {
		if was := c.was[name]; was == nil || was.Digest() != is.Digest() {
			return false
		}
	}
	owned := 0
	for _, owner := range l.Names {
		if owner == c.backend {
			owned++
		}
	}
	for _, name := range c.names {
		if l.Names[name] != c.backend {
			return false
		}
	}
	return owned == len(c.names)
}

// keepUnlisted keeps the approvals of tools that are not listed, and the names of the backend.
func (c *toolChanges) keepUnlisted(l *pins.Lock) {
	for name, tool := range c.was {
		if c.is[name] == nil {
			c.is[name] = tool
		}
	}
	for name, owner := range l.Names {
		if owner == c.backend {
			c.names = append(c.names, name)
		}
	}
}

// prepare reads the lock file, and determines the backends to compare.
func (r *toolReview) prepare() (err error) {
	if r.path == "" {
		return hintedError{
			errors.New("the configuration is not a regular file, and so has no lock file"),
			"name a file with --config",
		}
	}
	if r.lock, err = pins.Read(r.path); err != nil {
		return err
	}
	isOff := false
	r.perPrincipal = make(map[string]bool)
	for _, b := range r.Config.Backends {
		r.perPrincipal[b.Name] = b.OAuth.Per == config.PerPrincipal
		if !b.Enabled || r.only != "" && b.Name != r.only {
			continue
		}
		if isOff = b.Tools.Pin == config.PinOff; !isOff {
			r.targets = append(r.targets, b.Name)
		}
	}
	switch {
	case r.only == "" || len(r.targets) > 0:
		return nil
	case isOff:
		return hintedError{
			fmt.Errorf("backend %s has tools.pin: off", r.only),
			editHint(r.app, "set tools.pin: warn or block for it"),
		}
	}
	_, err = selectTools(r.app, r.only, nil) // it is unknown or disabled
	return err
}

// run shows the changes, and approves them if yes is true or the user agrees.
func (r *toolReview) run(ctx context.Context, yes bool) error {
	r.compare()
	w := &changePrinter{out: r.out, mask: r.mask}
	for i := range r.changes {
		w.print(&r.changes[i])
	}
	if err := w.flush(); err != nil {
		return err
	}
	switch {
	case len(r.changes) == 0:
		fmt.Fprintln(r.err, "gateway: nothing to approve")
		return r.printFailedBackends(r.only)
	case yes:
	case isTerminal(r.in) && isTerminal(r.err):
		if err := r.ask(ctx); err != nil {
			return err
		}
	default:
		_ = r.printFailedBackends(r.only)
		return hintedError{errors.New("there are changes that are not approved"),
			r.command + " approves them"}
	}
	_, err := pins.Update(r.path, updateLockPath(r.Config.StateDir), r.approveIn)
	if err != nil {
		return output{path: r.path}.writeError(err)
	}
	fmt.Fprintf(r.err, "gateway: approved; wrote %s\n", printable(r.path))
	return r.printFailedBackends(r.only)
}

// approveIn approves the changes in a lock.
func (r *toolReview) approveIn(l *pins.Lock) bool {
	for _, c := range r.changes {
		if c.gone {
			l.Remove(c.backend)
		} else {
			l.Approve(c.backend, c.is, c.names)
		}
	}
	return true
}

// compare determines the changes. Backends that have not listed their tools are left out, and keep
// their names.
func (r *toolReview) compare() {
	configured, failed := make(map[string]bool), make(map[string]bool)
	for _, b := range r.Config.Backends {
		configured[b.Name] = true
		if _, known := r.backends.ListedTools(b.Name); !known && b.Enabled {
			failed[b.Name] = true
		}
	}
	for _, name := range r.targets {
		tools, known := r.backends.ListedTools(name)
		if !known {
			continue
		}
		c := toolChanges{backend: name, is: definitionsOf(tools)}
		var hadEntry bool
		c.was, hadEntry = r.lock.Backends[name]
		c.isNew = !hadEntry
		if r.perPrincipal[name] {
			c.keepUnlisted(r.lock)
		}
		for _, exposed := range exposedNames(r.backends.View().Snapshot, name) {
			owner := r.lock.Names[exposed]
			if owner != name && failed[owner] || slices.Contains(c.names, exposed) {
				continue
			}
			c.names = append(c.names, exposed)
			if owner != "" && owner != name {
				c.moved = append(c.moved, catalog.Move{Name: exposed, From: owner, To: name})
			}
		}
		if !c.isEmpty(r.lock) {
			r.changes = append(r.changes, c)
		}
	}
	if r.only != "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.lock.Backends)) {
		if !configured[name] {
			r.changes = append(r.changes, toolChanges{backend: name, gone: true})
		}
	}
}

// ask asks the user whether to approve the changes. It returns nil if the user agrees.
func (r *toolReview) ask(ctx context.Context) error {
	fmt.Fprint(r.err, "Approve these changes? [y/N] ")
	answers := make(chan string, 1)
	go func() { // it ends with the process if the user does not answer
		answer, _ := bufio.NewReader(io.LimitReader(r.in, 1<<10)).ReadString('\n')
		answers <- answer
	}()
	select {
	case answer := <-answers:
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		case "":
			fmt.Fprintln(r.err)
		}
		return errors.New("nothing was approved")
	case <-ctx.Done():
		fmt.Fprintln(r.err)
		return errInterrupted
	}
}
