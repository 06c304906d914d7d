// Package reload keeps a running gateway up to date with its configuration file: it watches the
// file, loads it again on a change and on SIGHUP, and records the configuration in force so that
// another process can compare it with the file.
//
// A configuration with errors is refused as a whole: the errors are logged and nothing changes. The
// package changes the gateway only through the interfaces Target and HTTPServer and the shared
// Certificates.
package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/config"
)

// A Target is the running gateway. Only the goroutine of [Reloader.Run] calls it.
type Target interface {
	// Tokens returns the tokens that the HTTP server accepts under c. Errors contain positions in
	// l.
	Tokens(l *config.Loaded, c *config.Config) ([]config.Token, error)
	// SetSecrets makes these the secrets that logs, errors and audit records mask.
	SetSecrets(secrets []string)
	// RestrictProfiles lets clients use only what their profiles permit both now and under c, until
	// ApplyBackends.
	RestrictProfiles(c *config.Config)
	// SetLogLevel sets the log level of c.
	SetLogLevel(c *config.Config)
	// ApplyBackends replaces the backends and the catalog options by those of c. It returns when
	// the new backends are ready or have failed, or ctx is done. If the wait is long, it calls late
	// once with the names of the backends that it waits for.
	ApplyBackends(ctx context.Context, c *config.Config, late func(names []string)) error
	// NotReady returns the backends, among these names, that were started and are not ready, each
	// with its state.
	NotReady(names map[string]bool) []string
	// RetryFailed makes failed backends start at once, and returns their names.
	RetryFailed() []string
	// NoteLockChange is called when the lock file of the configuration source may have changed. It
	// does not wait until the file is read.
	NoteLockChange(source string)
}

// An HTTPServer is the HTTP server of the gateway.
type HTTPServer interface {
	// UpdateAccess makes the server accept these tokens, and the values that c permits of the
	// headers Origin and Host.
	UpdateAccess(c *config.Config, tokens []config.Token)
}

// Options are the dependencies of a Reloader. Flags, LockPath, SearchPaths, TrustDir and Server are
// optional.
type Options struct {
	Initial *config.Loaded // the configuration that the gateway was started with
	Load    func(ctx context.Context, path string, local bool) (*config.Loaded, error)
	// Unchanged reports whether Load would read the same text again, from the file and from the
	// files that the file refers to.
	Unchanged func(*config.Loaded) bool
	Flags     []string // keys set by the command line
	// path of the lock file of a configuration, "" = none; nil = there are no lock files
	LockPath    func(source string) string
	SearchPaths []string // files to look for while there is no configuration file
	TrustDir    string   // directory of the approvals, "" = none
	Target      Target
	Server      HTTPServer // nil = no HTTP
	Certificate *Certificates
	Log         *slog.Logger
}

// A Reloader applies the configuration file to a running gateway after SIGHUP and after changes of
// the file.
//
//	reloadLoop ─ reload ─ read     reads and checks everything first
//	                    ├ refuse   on errors: logs them, changes nothing
//	                    └ apply    secrets, HTTP access, log level, backends, in this order
//	                       └ applyBackends   waits for new backends, until the file changes again
type Reloader struct {
	Options
	log     *slog.Logger
	watcher *fileWatcher
	sighup  <-chan struct{}

	// The fields below are used only by the goroutine of reloadLoop.
	lastRead    *config.Loaded // last valid configuration that was read
	current     *config.Config // in force
	source      string         // file of the current configuration, "" = none
	local       bool           // source was found in the working directory and requires an approval
	warned      []string       // logged warnings about current
	held        []string       // logged problems of backends that keep their old entry
	watched     []string       // files that watcher watches
	needRestart []string       // logged keys whose changes need a restart
	refused     bool           // the last read failed
	refusal     string         // error text of the last failed read
	queued      reloadReason   // reason for a further reload, found while waiting for new backends
}

// A reloadReason is a reason to read the file. A greater reason includes the smaller reasons.
type reloadReason uint8

const (
	none        reloadReason = iota
	fileChanged              // the file may have changed
	requested                // by SIGHUP; the administrator expects a log record in any case
)

// New returns a Reloader. Run starts it.
func New(o Options) *Reloader {
	return &Reloader{
		Options: o, log: o.Log, watcher: newFileWatcher(o.Log),
		lastRead: o.Initial, current: o.Initial.Config, source: o.Initial.Source,
		local: o.Initial.Local, warned: o.Initial.Warnings,
	}
}

// Run calls work, reloads the configuration until work returns, and returns the error of work. The
// channel sighup receives a value for each SIGHUP; it may be nil.
func (r *Reloader) Run(
	ctx context.Context, sighup <-chan struct{}, work func(context.Context) error,
) error {
	ctx, end := context.WithCancel(ctx)
	r.sighup = sighup
	var running sync.WaitGroup
	running.Go(func() { r.watcher.run(ctx) })
	running.Go(func() { r.reloadLoop(ctx) })
	defer running.Wait()
	defer end()
	return work(ctx)
}

// reloadLoop runs one reload at a time. All reasons that arise during a reload together cause one
// further reload.
func (r *Reloader) reloadLoop(ctx context.Context) {
	r.recordRunning()
	r.watchFiles()
	for ctx.Err() == nil {
		if r.queued == none {
			select {
			case <-ctx.Done():
				return
			case <-r.sighup:
				r.queued = requested
			case <-r.watcher.changed:
				r.queued = fileChanged
			}
		}
		reason := r.queued
		r.queued = none
		r.reload(ctx, reason == requested)
		if reason == requested {
			r.retryFailed()
		}
	}
}

// retryFailed makes failed backends start at once, because an administrator may send SIGHUP after
// repairing a backend.
func (r *Reloader) retryFailed() {
	if names := r.Target.RetryFailed(); len(names) > 0 {
		r.log.Info("failed backends retried at once", "backend", NameList(names))
	}
}

// watchFiles passes the files that a reload reads to the watcher. Without a configuration file
// these are the search paths. A pipe is not watched, because it can be read only once.
func (r *Reloader) watchFiles() {
	if r.source != "" && !IsRegularOrMissing(r.source) {
		return
	}
	files := []string{r.source}
	if r.source == "" { // one may be written later
		files = slices.Clone(r.SearchPaths)
	}
	if r.current.TLS.Cert != "" && r.Server != nil {
		files = append(files, r.current.TLS.Cert, r.current.TLS.Key)
	}
	files = append(files, r.lastRead.Files()...)
	if r.LockPath != nil && r.LockPath(r.source) != "" {
		files = append(files, r.LockPath(r.source))
	}
	// A new approval causes a reload.
	if r.source == "" && r.TrustDir != "" || r.local && isDir(r.TrustDir) {
		files = append(files, r.TrustDir)
	}
	if !slices.Equal(files, r.watched) {
		r.watched = files
		r.watcher.watch(files)
	}
}

// awaitContent waits while the file is empty or missing, for at most maximumBurst, because another
// process may be about to write it. The watcher waits before it reports a change, but SIGHUP can
// arrive at any moment.
func (r *Reloader) awaitContent(ctx context.Context) {
	began := time.Now()
	for ctx.Err() == nil && isMissingOrEmpty(r.source) && time.Since(began) < maximumBurst {
		select {
		case <-time.After(quietPeriod):
		case <-ctx.Done():
		}
	}
}

// isMissingOrEmpty reports whether a file is empty or missing; false if path is "".
func isMissingOrEmpty(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return path != "" && errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular() && info.Size() == 0
}

// reload reads the file and applies the changes. If requested is true, the outcome is logged in any
// case.
func (r *Reloader) reload(ctx context.Context, requested bool) {
	began := time.Now()
	r.noteLockChange()
	if requested {
		r.awaitContent(ctx)
	} else if r.isUnchanged() {
		r.logUnchanged(r.source, false)
		return
	}
	next, changes, pair, err := r.read(ctx, requested)
	if ctx.Err() != nil { // the error may be that of a command that was killed
		return
	}
	if err != nil {
		// Without a file the watcher reports every change at the search paths. The same error is
		// therefore logged again only if the reload was requested.
		if text := err.Error(); requested || r.source != "" || text != r.refusal {
			r.refuse(err)
			r.refusal = text
		}
		r.refused = true
		return
	}
	r.refusal = ""
	r.lastRead = next
	r.logHeld(next.Config, changes, requested)
	if r.appliesChanges(changes, pair) {
		r.apply(ctx, next, changes, pair)
		r.logReload(next, changes, time.Since(began))
		r.recordRunning()
	} else if len(changes.NeedRestart)+len(changes.Held) == 0 {
		r.logUnchanged(next.Source, requested)
		if next.Source == "" { // the search may have skipped a file and returned a warning
			r.logWarnings(next)
		}
	}
	r.refused = false
	r.watchFiles()
	isNew := !slices.Equal(changes.NeedRestart, r.needRestart)
	if len(changes.NeedRestart) > 0 && (requested || isNew) {
		r.log.Warn("changes not applied until a restart",
			"changed", strings.Join(changes.NeedRestart, ", "))
	}
	r.needRestart = changes.NeedRestart
}

// noteLockChange tells the target that the lock file may have changed. Approvals apply even while
// the configuration is invalid, and while a reload waits for backends.
func (r *Reloader) noteLockChange() {
	if r.source != "" {
		r.Target.NoteLockChange(r.source)
	}
}

// isUnchanged reports whether the configuration file certainly has the content that was read last.
// It returns false after a refusal, and with TLS, so that the certificate is read again.
func (r *Reloader) isUnchanged() bool {
	return !r.refused && (r.Server == nil || r.current.TLS.Cert == "") &&
		r.source != "" && !isPiped(r.source) && r.Unchanged(r.lastRead)
}

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
		if requested || !slices.Contains(r.held, problem) {
			r.log.Warn("new entry of the backend misconfigured: keeping the old entry, "+
				"with the new filters", "backend", b.Name, "err", b.Misconfigured,
				"text", heldHint(b.Misconfigured))
		}
	}
	r.held = held
}

// heldHint returns the hint for a backend with this problem that keeps its old entry.
func heldHint(problem string) string {
	if strings.Contains(problem, "variable ") {
		return unsetVariableHint
	}
	return "send SIGHUP when the problem is solved"
}

// appliesChanges reports whether any of the changes can be applied without a restart.
func (r *Reloader) appliesChanges(changes config.Changes, pair *certificate) bool {
	return changes.AnyBackend() || len(changes.Applied) > 0 || !r.Certificate.isCurrent(pair)
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
		if !slices.Contains(r.warned, w) {
			r.log.Warn("configuration warning", "text", w)
		}
	}
	r.warned = next.Warnings
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

// read reads the configuration file. Without a current file, it searches for one. Unless again is
// true, it uses the last valid configuration if the file contains the same text, so that commands
// in the file are not run without need. It returns the configuration, its differences from the
// configuration in force, and the certificate of the HTTP server.
func (r *Reloader) read(
	ctx context.Context, again bool,
) (*config.Loaded, config.Changes, *certificate, error) {
	var unchanged config.Changes
	if r.source != "" && isPiped(r.source) {
		return nil, unchanged, nil, &config.Error{
			File: r.source, Problem: "is a pipe or a device, which can be read only once",
			Hint: "use a regular file",
		}
	}
	next := r.lastRead
	if again || r.refused || r.source == "" || !r.Unchanged(next) {
		var err error
		if next, err = r.Load(ctx, r.source, r.local); err != nil {
			return nil, unchanged, nil, err
		}
	}
	if err := CheckNotEmptied(next, len(r.current.Backends)); err != nil {
		return nil, unchanged, nil, err
	}
	changes := config.Diff(r.current, next.Config)
	if r.Server == nil {
		return next, changes, nil, nil
	}
	after := r.current.Effective(next.Config, changes)
	if _, err := r.Target.Tokens(next, after); err != nil {
		return nil, unchanged, nil, err
	}
	pair, err := r.readCertificate(next, after.TLS)
	return next, changes, pair, err
}

// readCertificate reads the certificate. If the current certificate was read from a pipe, it is
// kept, because a second read of the pipe would block forever.
func (r *Reloader) readCertificate(next *config.Loaded, c config.TLS) (*certificate, error) {
	switch {
	case !isPiped(c.Cert) && !isPiped(c.Key):
		return LoadCertificate(next, c)
	case c == r.current.TLS:
		return r.Certificate.Load(), nil
	}
	e := next.ErrorAt("tls")
	e.Problem = "names a pipe or a device, which is read only at the start"
	e.Hint = "use regular files"
	return nil, e
}

// CheckNotEmptied returns an error if the file is empty and the running gateway has backends.
func CheckNotEmptied(next *config.Loaded, backends int) error {
	if !next.Blank() || backends == 0 {
		return nil
	}
	return &config.Error{
		File: next.Source, Problem: "is empty", Hint: "write backends: [] if there are to be none",
	}
}

// maxProblems bounds the number of logged errors in a file.
const maxProblems = 20

// unsetVariableHint replaces config.UnsetHint in a gateway that is already running.
const unsetVariableHint = "the gateway's own environment counts, as it was at its start: " +
	"give a default, ${VAR:-default}, or set the variable and restart the gateway"

// refuse logs the errors in the file, and a warning that the previous configuration stays in force.
func (r *Reloader) refuse(err error) {
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
			hint = unsetVariableHint
		}
		if hint != "" {
			line += " (" + hint + ")"
		}
		r.log.Error("configuration error", "err", line)
		if n > maxProblems {
			break
		}
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

// apply puts next into force. New secrets are masked before anything can log them. The tokens are
// replaced before the wait for new backends, so that a revoked token becomes invalid at once. They
// select profiles, so profiles permit nothing more before the tokens are replaced.
func (r *Reloader) apply(
	ctx context.Context, next *config.Loaded, changes config.Changes, pair *certificate,
) {
	c := r.current.Effective(next.Config, changes)
	var tokens []config.Token
	var err error
	if r.Server != nil {
		tokens, err = r.Target.Tokens(next, c)
	}
	secrets := slices.Concat(config.Secrets(next.Config), config.Secrets(c))
	for _, t := range tokens {
		secrets = append(secrets, t.Text)
	}
	r.Target.SetSecrets(secrets)
	if pair != nil {
		r.Certificate.Store(pair)
	}
	r.Target.RestrictProfiles(c)
	switch {
	case r.Server == nil:
	case err != nil: // read called Tokens without an error, but a file has changed since
		r.log.Error("tokens not reloaded: keeping the previous tokens, origins and hosts",
			"err", err)
	default:
		r.Server.UpdateAccess(c, tokens)
	}
	r.Target.SetLogLevel(c)
	before := r.current
	r.current, r.source, r.local = c, next.Source, next.Local
	if err := r.applyBackends(ctx); err != nil {
		r.log.Error("backends not reloaded: keeping the previous backends", "err", err)
		c.Backends, c.Catalog, c.Limits.Page = before.Backends, before.Catalog, before.Limits.Page
		c.Profiles = before.Profiles
	}
}

// applyBackends applies the backends of the current configuration and waits until the new backends
// are ready or have failed. The wait ends early if the file changes again, so that a server that
// hangs does not delay the reload that repairs it.
func (r *Reloader) applyBackends(ctx context.Context) error {
	ctx, endWait := context.WithCancel(ctx)
	defer endWait()
	late, done := make(chan []string, 1), make(chan error, 1)
	go func() {
		done <- r.Target.ApplyBackends(ctx, r.current, func(names []string) { late <- names })
	}()
	waiting := false // true = the wait was logged
	for {
		select {
		case err := <-done:
			return err
		case names := <-late:
			waiting = true
			r.log.Info("reload waiting for backends", "file", r.source,
				"backend", NameList(names))
		case <-r.sighup:
			r.queued = requested
			if waiting || r.isNewer(ctx) { // otherwise the signal may refer to this change
				endWait()
			}
		case <-r.watcher.changed:
			r.queued = max(r.queued, fileChanged)
			r.noteLockChange()
			if r.isNewer(ctx) {
				endWait()
			}
		}
	}
}

// isNewer reports whether the file differs from the configuration being applied, or is invalid.
func (r *Reloader) isNewer(ctx context.Context) bool {
	_, changes, pair, err := r.read(ctx, false)
	return err != nil || r.appliesChanges(changes, pair)
}

// recordRunning records the configuration in force, for gateway check --diff.
func (r *Reloader) recordRunning() {
	if !IsRegularOrMissing(r.source) {
		return
	}
	if err := WriteRunningConfig(r.source, r.current, r.Flags); err != nil {
		r.log.Warn("cannot record the running configuration: gateway check --diff cannot use it",
			"err", err)
	}
}

// IsRegularOrMissing reports whether a file is regular or does not exist.
func IsRegularOrMissing(path string) bool {
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

// NameList joins the first 20 names and counts the others. It returns "none" if there are no names.
func NameList(names []string) string {
	const shown = 20
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "none")
}
