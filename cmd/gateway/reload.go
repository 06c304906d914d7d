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
	"mcpgateway/config"
	"mcpgateway/door"
)

// A reloader has the gateway run by what stands in its file now, on SIGHUP and when the
// file changes.
//
//	run ─ reload ─ read     all of it is read and checked first
//	             ├ refuse   it is wrong: said, and nothing changes
//	             └ apply    mask of secrets, door, log level, backends, in this order
type reloader struct {
	*app
	load    func(path string) (*config.Loaded, error)
	flags   []string   // keys that the command line has set
	door    *door.Door // nil if there is none
	lookout *lookout

	now     *config.Config // what is in force; of the goroutine that runs
	source  string         // the file that it is from
	watched []string
	pending []string // keys that were said to need a restart
}

func (f *flags) reloader(a *app, d *door.Door) *reloader {
	return &reloader{
		app: a, load: f.load, flags: f.given(), door: d, lookout: newLookout(a.log),
		now: a.Config, source: a.Source,
	}
}

// during does work, and reloads for as long as that lasts.
func (r *reloader) during(ctx context.Context, hangups <-chan struct{}, work func(context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { r.lookout.run(ctx) })
	running.Go(func() { r.run(ctx, hangups) })
	defer running.Wait()
	defer end()
	return work(ctx)
}

// run reloads, one time after the other: what comes while it does is one more time.
func (r *reloader) run(ctx context.Context, hangups <-chan struct{}) {
	r.record()
	r.watch()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			r.reload(ctx, true)
		case <-r.lookout.changed:
			r.reload(ctx, false)
		}
	}
}

// watch has the lookout watch what is read. What is no file is not watched: a pipe gives what it has once.
func (r *reloader) watch() {
	if r.source == "" || !isRegular(r.source) {
		return
	}
	files := []string{r.source}
	if r.now.TLS.Cert != "" && r.door != nil {
		files = append(files, r.now.TLS.Cert, r.now.TLS.Key)
	}
	if !slices.Equal(files, r.watched) {
		r.watched = files
		r.lookout.watch(files)
	}
}

// reload takes over what has changed. Asked says that somebody wants to know.
func (r *reloader) reload(ctx context.Context, asked bool) {
	began := time.Now()
	next, pair, err := r.read()
	if err != nil {
		r.refuse(err)
		return
	}
	changes := config.Diff(r.now, next.Config)
	if changes.Backends() || len(changes.Taken) > 0 || !r.certificate.same(pair) {
		r.apply(ctx, next, changes, pair)
		r.say(next, changes, time.Since(began))
		r.record()
		r.watch()
	} else if len(changes.Restart) == 0 {
		say := r.log.Debug
		if asked {
			say = r.log.Info
		}
		say("the configuration has not changed", "file", next.Source)
	}
	if len(changes.Restart) > 0 && (asked || !slices.Equal(changes.Restart, r.pending)) {
		r.log.Warn("what stands there now under these keys counts when the gateway is started anew: " + strings.Join(changes.Restart, ", "))
	}
	r.pending = changes.Restart
}

// say says what a reload has changed.
func (r *reloader) say(next *config.Loaded, c config.Changes, took time.Duration) {
	added, removed := slices.Concat(c.Added, c.Enabled), slices.Concat(c.Removed, c.Disabled)
	r.log.Info("the configuration was loaded anew", "file", next.Source, "added", some(added), "removed", some(removed),
		"changed", some(changed(c)), "kept", len(c.Kept), "dur", took.Round(time.Millisecond))
	for _, w := range next.Warnings {
		r.log.Warn(w)
	}
}

// changed names what is other than it was, but there as it was before.
func changed(c config.Changes) []string {
	var all []string
	for _, b := range c.Changed {
		all = append(all, b.Name+" ("+some(b.Keys)+")")
	}
	for _, name := range c.Moved {
		all = append(all, name+" (its place)")
	}
	return append(all, c.Taken...)
}

// read reads the file that is in force; where there was none, any there is now.
func (r *reloader) read() (*config.Loaded, *certificate, error) {
	if r.source != "" && isPiped(r.source) {
		return nil, nil, &config.Error{File: r.source, Problem: "is a pipe or a device, which can be read once", Hint: "write a file"}
	}
	next, err := r.load(r.source)
	if err != nil {
		return nil, nil, err
	}
	if next.Blank() && len(r.now.Backends) > 0 {
		return nil, nil, isBlank(next.Source)
	}
	if r.door == nil {
		return next, nil, nil
	}
	pair, err := r.readCertificate(next.Source, r.now.After(next.Config, config.Diff(r.now, next.Config)).TLS)
	return next, pair, err
}

// readCertificate is loadCertificate, but keeps what came from a pipe: to read that again would wait for ever.
func (r *reloader) readCertificate(source string, c config.TLS) (*certificate, error) {
	switch {
	case !isPiped(c.Cert) && !isPiped(c.Key):
		return loadCertificate(source, c)
	case c == r.now.TLS:
		return r.certificate.Load(), nil
	}
	return nil, &config.Error{File: source, Key: "tls", Problem: "names a pipe or a device, which is read at the start alone", Hint: "name files"}
}

// isBlank is what is wrong with a file that has nothing of what is in force.
func isBlank(file string) error {
	return &config.Error{File: file, Problem: "is empty", Hint: "write backends: [] if there are to be none"}
}

// maxProblems is how many of the errors in a file are said.
const maxProblems = 20

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
		if hint != "" {
			line += " (" + hint + ")"
		}
		r.log.Error("configuration: " + line)
		if n > maxProblems {
			break
		}
	}
	r.log.Warn("nothing was loaded: the configuration of before stays in force", "file", r.source)
}

// apply makes the gateway run by next. Secrets are masked before anything can speak of them,
// and a token that was taken back is no good while backends still start.
func (r *reloader) apply(ctx context.Context, next *config.Loaded, changes config.Changes, pair *certificate) {
	c := r.now.After(next.Config, changes)
	r.mask.Renew(slices.Concat(config.Secrets(next.Config), config.Secrets(c))...)
	if pair != nil {
		r.certificate.Store(pair)
	}
	if r.door != nil {
		r.door.Renew(c.Auth.Tokens, c.Origins, c.Hosts)
	}
	r.level.Set(levelOf(c))
	if err := r.set.Apply(ctx, backends.Change{Backends: c.Backends, Catalog: catalogOptions(c), Wait: c.Catalog.Wait}); err != nil {
		r.log.Error("the backends stay what they were", "err", err)
		c.Backends, c.Catalog, c.Limits.Page = r.now.Backends, r.now.Catalog, r.now.Limits.Page
	}
	r.now, r.source = c, next.Source
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
