package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
)

// A reloader has the gateway run by what stands in its file now, on SIGHUP and when the
// file changes.
//
//	run ─ reload ─ read     all of it is read and checked first
//	             ├ refuse   it is wrong: said, and nothing changes
//	             └ apply    mask of secrets, door, log level, backends, in this order
//	                └ bringUp   waits for new backends, until something newer comes
type reloader struct {
	*app
	load    func(path string, local bool) (*config.Loaded, error)
	same    func(l *config.Loaded) bool
	flags   []string           // keys that the command line has set
	door    *httpserver.Server // nil if there is none
	lookout *lookout
	hangups <-chan struct{}

	last    *config.Loaded // what was read last, unless that was wrong
	now     *config.Config // what is in force; of the goroutine that runs
	source  string         // the file that it is from
	local   bool           // source was found in the working directory, and must be approved
	places  []string       // files that are looked for while source is ""
	trust   string         // the directory of the approvals
	warned  []string       // warnings about the configuration in force
	held    []string       // what is wrong with the newer entries of backends that stay what they were
	watched []string
	pending []string // keys that were said to need a restart
	refused bool     // what was read last was wrong
	refusal string   // why
	due     wish     // what came while new backends were waited for
}

// A wish to have the file read, the stronger the greater.
type wish uint8

const (
	nothing wish = iota
	look         // it may have changed
	asked        // somebody wants to know
)

func (f *flags) reloader(a *app, d *httpserver.Server) *reloader {
	return &reloader{
		app: a, load: f.reload, same: f.unchanged, flags: f.given(), door: d, lookout: newLookout(a.log),
		last: a.Loaded, now: a.Config, source: a.Source, local: a.Local, trust: f.trusts().dir, warned: a.Warnings,
		places: config.SearchPaths(config.Options{Path: f.config}),
	}
}

// during does work, and reloads for as long as that lasts.
func (r *reloader) during(ctx context.Context, hangups <-chan struct{}, work func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	r.hangups = hangups
	var running sync.WaitGroup
	running.Go(func() { r.lookout.run(ctx) })
	running.Go(func() { r.run(ctx) })
	running.Go(func() { r.app.recordNames(ctx) })
	defer running.Wait()
	defer end()
	return work(ctx)
}

// run reloads, one time after the other: what comes while it does is one more time.
func (r *reloader) run(ctx context.Context) {
	r.record()
	r.watch()
	for ctx.Err() == nil {
		if r.due == nothing {
			select {
			case <-ctx.Done():
				return
			case <-r.hangups:
				r.due = asked
			case <-r.lookout.changed:
				r.due = look
			}
		}
		wish := r.due
		r.due = nothing
		r.reload(ctx, wish == asked)
		if wish == asked {
			r.retry()
		}
	}
}

// retry has the backends that have failed be tried at once: whoever has repaired one asks for that.
func (r *reloader) retry() {
	if names := r.set.RetryFailed(); len(names) > 0 {
		r.log.Info("failed backends are tried at once: " + some(names))
	}
}

// watch makes the lookout watch the files that are read. If there is no configuration file, it watches the places where
// one is looked for. It does not watch a pipe, which can be read only once.
func (r *reloader) watch() {
	if r.source != "" && !isRegular(r.source) {
		return
	}
	files := []string{r.source}
	if r.source == "" { // one may be written later
		files = slices.Clone(r.places)
	}
	if r.now.TLS.Cert != "" && r.door != nil {
		files = append(files, r.now.TLS.Cert, r.now.TLS.Key)
	}
	if r.source == "" && r.trust != "" || r.local && isDir(r.trust) { // an approval has the file read again
		files = append(files, r.trust)
	}
	if !slices.Equal(files, r.watched) {
		r.watched = files
		r.lookout.watch(files)
	}
}

// settle waits while the file is empty or gone, though not for long: somebody may be about to write it. The
// lookout has waited before it tells of a change, but SIGHUP comes at any moment.
func (r *reloader) settle(ctx context.Context) {
	for began := time.Now(); ctx.Err() == nil && isVoid(r.source) && time.Since(began) < burstTime; {
		select {
		case <-time.After(quietTime):
		case <-ctx.Done():
		}
	}
}

// isVoid reports whether a file that was found once is empty or gone.
func isVoid(path string) bool {
	info, err := os.Stat(path)
	return path != "" && (errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0)
}

// reload takes over what has changed. Asked says that somebody wants to know.
func (r *reloader) reload(ctx context.Context, asked bool) {
	began := time.Now()
	if asked {
		r.settle(ctx)
	} else if r.isUnchanged() {
		r.sayNothingNew(r.source, false)
		return
	}
	next, changes, pair, err := r.read()
	if err != nil {
		// The places where a file is looked for change for other reasons, too.
		if text := err.Error(); asked || r.source != "" || text != r.refusal {
			r.refuse(err)
			r.refusal = text
		}
		r.refused = true
		return
	}
	r.refusal = ""
	r.last = next
	r.sayHeld(next.Config, changes, asked)
	if r.takes(changes, pair) {
		r.apply(ctx, next, changes, pair)
		r.say(next, changes, time.Since(began))
		r.record()
		r.watch()
	} else if len(changes.NeedRestart)+len(changes.Held) == 0 {
		r.sayNothingNew(next.Source, asked)
		if next.Source == "" { // a file may be passed over
			r.sayWarnings(next)
		}
	}
	r.refused = false
	if len(changes.NeedRestart) > 0 && (asked || !slices.Equal(changes.NeedRestart, r.pending)) {
		r.log.Warn("what stands there now under these keys counts when the gateway is started anew: " + strings.Join(changes.NeedRestart, ", "))
	}
	r.pending = changes.NeedRestart
}

// isUnchanged reports whether all files that are watched are certainly those that were read last. With TLS they are read
// again to find out.
func (r *reloader) isUnchanged() bool {
	return !r.refused && (r.door == nil || r.now.TLS.Cert == "") && r.source != "" && !isPiped(r.source) && r.same(r.last)
}

// sayNothingNew says that the file says what is in force; to whoever was told that it is wrong, that
// it does so again.
func (r *reloader) sayNothingNew(file string, asked bool) {
	switch {
	case r.refused && file == "":
		r.log.Info("there is no configuration file again: the embedded demo backend stays")
	case r.refused:
		r.log.Info("the file is again what is in force", "file", file)
	case asked:
		r.log.Info("the configuration has not changed", "file", file)
	default:
		r.log.Debug("the configuration has not changed", "file", file)
	}
}

// sayHeld warns of backends that stay what they were, since their entries in next are misconfigured. It says
// what it has said already only if asked.
func (r *reloader) sayHeld(next *config.Config, c config.Changes, asked bool) {
	var held []string
	for _, b := range next.Backends {
		if !slices.Contains(c.Held, b.Name) {
			continue
		}
		problem := b.Name + ": " + b.Misconfigured
		held = append(held, problem)
		if asked || !slices.Contains(r.held, problem) {
			r.log.Warn("the new entry of the backend is misconfigured: its old entry stays in force with the new filters "+
				"until the entry is corrected ("+unsetHint+")", "backend", b.Name, "err", b.Misconfigured)
		}
	}
	r.held = held
}

// takes reports whether a reload takes anything over of what differs.
func (r *reloader) takes(changes config.Changes, pair *certificate) bool {
	return changes.AnyBackend() || len(changes.Applied) > 0 || !r.certificate.same(pair)
}

// say says what a reload has changed.
func (r *reloader) say(next *config.Loaded, c config.Changes, took time.Duration) {
	added, removed := slices.Concat(c.MarkInactive(c.Added), c.Enabled), slices.Concat(c.MarkInactive(c.Removed), c.Disabled)
	log := r.log
	if down := r.down(c); len(down) > 0 {
		log = log.With("down", some(down))
	}
	log.Info("the configuration was loaded anew", "file", next.Source, "added", some(added), "removed", some(removed),
		"changed", some(changed(c)), "kept", len(c.Unchanged), "dur", took.Round(time.Millisecond))
	r.sayWarnings(next)
}

// sayWarnings says the warnings that were not said before.
func (r *reloader) sayWarnings(next *config.Loaded) {
	for _, w := range next.Warnings {
		if !slices.Contains(r.warned, w) {
			r.log.Warn(w)
		}
	}
	r.warned = next.Warnings
}

// down names those of the new and the changed backends that are not up, though they were started.
func (r *reloader) down(c config.Changes) (names []string) {
	fresh := make(map[string]bool)
	for _, name := range slices.Concat(c.Added, c.Enabled) {
		fresh[name] = true
	}
	for _, b := range c.Changed {
		fresh[b.Name] = true
	}
	for _, s := range r.set.Status() {
		switch s.State {
		case backends.Starting, backends.BackingOff, backends.BreakerOpen, backends.Misconfigured:
			if fresh[s.Name] {
				names = append(names, s.Name+" ("+string(s.State)+")")
			}
		}
	}
	return names
}

// changed names what is other than it was, but there as it was before.
func changed(c config.Changes) []string {
	var all []string
	for _, b := range c.Changed {
		what := some(b.Keys)
		if effect := map[config.Effect]string{
			config.Restarts: "started anew", config.Starts: "started",
			config.Stops: "stopped", config.StaysDown: "not started",
		}[b.Effect]; effect != "" {
			what += "; " + effect
		}
		all = append(all, b.Name+" ("+what+")")
	}
	for _, name := range c.Moved {
		all = append(all, name+" (its place)")
	}
	return append(all, c.Applied...)
}

// read reads the configuration file, or any that there is now if there was none. It returns the
// configuration, what differs from the one in force, and the certificate of the HTTP server.
func (r *reloader) read() (*config.Loaded, config.Changes, *certificate, error) {
	var none config.Changes
	if r.source != "" && isPiped(r.source) {
		return nil, none, nil, &config.Error{File: r.source, Problem: "is a pipe or a device, which can be read once", Hint: "write a file"}
	}
	next, err := r.load(r.source, r.local)
	if err != nil {
		return nil, none, nil, err
	}
	if err := emptied(next, len(r.now.Backends)); err != nil {
		return nil, none, nil, err
	}
	changes := config.Diff(r.now, next.Config)
	if r.door == nil {
		return next, changes, nil, nil
	}
	after := r.now.Effective(next.Config, changes)
	if _, err := r.tokens(next, after); err != nil {
		return nil, none, nil, err
	}
	pair, err := r.readCertificate(next, after.TLS)
	return next, changes, pair, err
}

// readCertificate is loadCertificate, but keeps what came from a pipe: to read that again would wait for ever.
func (r *reloader) readCertificate(next *config.Loaded, c config.TLS) (*certificate, error) {
	switch {
	case !isPiped(c.Cert) && !isPiped(c.Key):
		return loadCertificate(next, c)
	case c == r.now.TLS:
		return r.certificate.Load(), nil
	}
	e := next.ErrorAt("tls")
	e.Problem, e.Hint = "names a pipe or a device, which is read at the start alone", "name files"
	return nil, e
}

// emptied says what is wrong with an empty file, for a gateway that has so many backends.
func emptied(next *config.Loaded, backends int) error {
	if !next.Blank() || backends == 0 {
		return nil
	}
	return &config.Error{File: next.Source, Problem: "is empty", Hint: "write backends: [] if there are to be none"}
}

// maxProblems is how many of the errors in a file are said.
const maxProblems = 20

// unsetHint stands for config.UnsetHint where the gateway runs already.
const unsetHint = "the gateway's own environment counts, as it was at its start: give a default, ${VAR:-default}, or set the variable and start the gateway anew"

// refuse says what is wrong, and that nothing has changed.
func (r *reloader) refuse(err error) {
	all, one := config.Errors(nil), (*config.Error)(nil)
	switch {
	case errors.As(err, &all):
	case errors.As(err, &one):
		all = config.Errors{one}
	default:
		all = config.Errors{{Problem: err.Error()}}
	}
	n := 0
	for line, hint := range all.Hinted() {
		if n++; n > maxProblems {
			line, hint = fmt.Sprintf("%d more problems", len(all)-maxProblems), ""
		}
		if hint == config.UnsetHint {
			hint = unsetHint
		}
		if hint != "" {
			line += " (" + hint + ")"
		}
		r.log.Error("configuration: " + line)
		if n > maxProblems {
			break
		}
	}
	switch {
	case r.source == "":
		r.log.Warn("nothing was loaded: the embedded demo backend stays until the file is right")
	case isMissing(r.source):
		r.log.Warn("the configuration file is gone: the configuration of before stays in force; the file is loaded when it is there again",
			"file", r.source)
	default:
		r.log.Warn("nothing was loaded: the configuration of before stays in force", "file", r.source)
	}
}

// apply makes the gateway run by next. Secrets are masked before anything can speak of them,
// and a token that was taken back is no good while backends still start.
func (r *reloader) apply(ctx context.Context, next *config.Loaded, changes config.Changes, pair *certificate) {
	c := r.now.Effective(next.Config, changes)
	var tokens []string
	var err error
	if r.door != nil {
		tokens, err = r.tokens(next, c)
	}
	r.mask.Renew(slices.Concat(config.Secrets(next.Config), config.Secrets(c), tokens)...)
	if pair != nil {
		r.certificate.Store(pair)
	}
	switch {
	case r.door == nil:
	case err != nil: // it could be read a moment ago
		r.log.Error("tokens, origins and hosts stay what they were", "err", err)
	default:
		r.door.UpdateAccess(tokens, c.Origins, c.Hosts)
	}
	r.level.Set(levelOf(c))
	before := r.now
	r.now, r.source, r.local = c, next.Source, next.Local
	if err := r.bringUp(ctx); err != nil {
		r.log.Error("the backends stay what they were", "err", err)
		c.Backends, c.Catalog, c.Limits.Page = before.Backends, before.Catalog, before.Limits.Page
	}
}

// bringUp has the backends be those of the configuration at hand, and waits until the new ones are
// ready or have failed. If what stands in the file is something newer meanwhile that wait ends, so
// that a server which hangs does not keep its own repair waiting.
func (r *reloader) bringUp(ctx context.Context) error {
	ctx, hurry := context.WithCancel(ctx)
	defer hurry()
	late, done := make(chan []string, 1), make(chan error, 1)
	go func() {
		done <- r.set.Apply(ctx, backends.Change{
			Backends: r.now.Backends, Catalog: catalogOptions(r.now), CatalogWait: r.now.Catalog.Wait,
			OnSlowStart: func(names []string) { late <- names },
		})
	}()
	waiting := false // and said so
	for {
		select {
		case err := <-done:
			return err
		case names := <-late:
			waiting = true
			r.log.Info("loading "+r.source+" anew: waiting for "+some(names), "file", r.source)
		case <-r.hangups:
			r.due = asked
			if waiting || r.isNewer() { // else it may be meant for this very change
				hurry()
			}
		case <-r.lookout.changed:
			r.due = max(r.due, look)
			if r.isNewer() {
				hurry()
			}
		}
	}
}

// isNewer reports whether what stands in the file is not what is being loaded, be it right or wrong.
func (r *reloader) isNewer() bool {
	_, changes, pair, err := r.read()
	return err != nil || r.takes(changes, pair)
}

// record keeps what is in force for others to compare with.
func (r *reloader) record() {
	if !isRegular(r.source) {
		return
	}
	if err := writeApplied(r.source, r.now, r.flags); err != nil {
		r.log.Warn("gateway check --diff will not know what is in force", "err", err)
	}
}

func isRegular(path string) bool {
	info, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular()
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isPiped(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// some names a few, and says how many more there are.
func some(names []string) string {
	const few = 20
	text := strings.Join(names[:min(few, len(names))], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "none")
}
