package reload

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/config"
)

// logUnchanged logs that the file contains the configuration in force. After a refusal it logs
// instead that the error is corrected, or that the refused file was removed.
func (r *Reloader) logUnchanged(file string, requested bool) {
	switch {
	case r.refused && file == "":
		r.log.Info("refused configuration file removed: keeping the embedded demo backend")
	case r.refused:
		r.log.Info("configuration corrected, otherwise unchanged", "file", file)
	case requested:
		r.log.Info("configuration unchanged", "file", file)
	default:
		r.log.Debug("configuration unchanged", "file", file)
	}
}

// logHeld warns of backends that keep their old entry because their entry in next is misconfigured.
// It repeats a warning only if requested is true.
func (r *Reloader) logHeld(next *config.Config, c config.Changes, requested bool) {
	var held []string
	for _, b := range next.Backends {
		if !slices.Contains(c.Held, b.Name) {
			continue
		}
		problem := b.Name + ": " + b.Misconfigured
		held = append(held, problem)
		if requested || !slices.Contains(r.logged.held, problem) {
			r.log.Warn("new entry of the backend misconfigured: keeping the old entry, "+
				"with the new filters", "backend", b.Name, "err", b.Misconfigured,
				"text", heldHint(b.Misconfigured))
		}
	}
	r.logged.held = held
}

// heldHint returns the hint for a backend with this problem that keeps its old entry.
func heldHint(problem string) string {
	if strings.Contains(problem, "variable ") {
		return unsetVariableHint
	}
	return "send SIGHUP when the problem is solved"
}

// logReload logs the changes that a reload has applied.
func (r *Reloader) logReload(next *config.Loaded, c config.Changes, took time.Duration) {
	added := slices.Concat(c.MarkInactive(c.Added), c.Enabled)
	removed := slices.Concat(c.MarkInactive(c.Removed), c.Disabled)
	log := r.log
	if down := r.notReady(c); len(down) > 0 {
		log = log.With("down", NameList(down))
	}
	log.Info("configuration reloaded", "file", next.Source,
		"added", NameList(added), "removed", NameList(removed),
		"changed", NameList(changedNames(c)), "kept", len(c.Unchanged),
		"dur", took.Round(time.Millisecond))
	r.logWarnings(next)
}

// logWarnings logs the warnings that were not logged before.
func (r *Reloader) logWarnings(next *config.Loaded) {
	for _, w := range next.Warnings {
		if !slices.Contains(r.logged.warnings, w) {
			r.log.Warn("configuration warning", "text", w)
		}
	}
	r.logged.warnings = next.Warnings
}

// notReady returns the names of the new and changed backends that were started and are not ready.
func (r *Reloader) notReady(c config.Changes) []string {
	names := make(map[string]bool)
	for _, name := range slices.Concat(c.Added, c.Enabled) {
		names[name] = true
	}
	for _, b := range c.Changed {
		names[b.Name] = true
	}
	return r.Target.NotReady(names)
}

// changedNames returns the changed backends, each with its changed keys and the effect of the
// change, followed by the other changed keys.
func changedNames(c config.Changes) []string {
	var all []string
	for _, b := range c.Changed {
		what := NameList(b.Keys)
		if effect := map[config.Effect]string{
			config.Restarts: "restarted", config.Starts: "started",
			config.Stops: "stopped", config.StaysDown: "not started",
		}[b.Effect]; effect != "" {
			what += "; " + effect
		}
		all = append(all, b.Name+" ("+what+")")
	}
	for _, name := range c.Moved {
		all = append(all, name+" (position)")
	}
	return append(all, c.Applied...)
}

// maxProblems bounds the number of logged errors in a file.
const maxProblems = 20

// unsetVariableHint replaces config.UnsetHint in a gateway that is already running.
const unsetVariableHint = "the gateway's own environment counts, as it was at its start: " +
	"give a default, ${VAR:-default}, or set the variable and restart the gateway"

// problemsOf returns a line for each problem of a configuration, with what to do about it.
func problemsOf(err error) (lines []string) {
	all, one := config.Errors(nil), (*config.Error)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &all):
	case errors.As(err, &one):
		all = config.Errors{one}
	default:
		all = config.Errors{{Problem: err.Error()}}
	}
	for line, hint := range all.Hinted() {
		if len(lines) == maxProblems {
			return append(lines, fmt.Sprintf("%d more problems", len(all)-maxProblems))
		}
		if hint == config.UnsetHint {
			hint = unsetVariableHint
		}
		if hint != "" {
			line += " (" + hint + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

// refuse logs the errors in the file, and a warning that the previous configuration stays in force.
func (r *Reloader) refuse(err error) {
	for _, line := range problemsOf(err) {
		r.log.Error("configuration error", "err", line)
	}
	switch {
	case r.source == "":
		r.log.Warn("configuration refused: keeping the embedded demo backend " +
			"until the file is corrected")
	case isMissing(r.source):
		r.log.Warn("configuration file missing: keeping the previous configuration "+
			"until it exists again", "file", r.source)
	default:
		r.log.Warn("configuration refused: keeping the previous configuration", "file", r.source)
	}
}

// NameList joins the first 20 names and counts the others. It returns "none" if there are no names.
func NameList(names []string) string {
	const shown = 20
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "none")
}
