// Package reload keeps a running gateway up to date with its configuration file: it watches the
// file, loads it again on a change and on SIGHUP, and records the configuration in force so that
// another process can compare it with the file.
//
// A configuration with errors is refused as a whole: the errors are logged and nothing changes. The
// package changes the gateway only through the interfaces Target and HTTPServer and the shared
// Certificates.
package reload

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	// SetAudit sets the limits, the compression and the chain of the audit file of c.
	SetAudit(c *config.Config)
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
	// OnReload is called when a reload begins to read the file, and the returned function when that
	// reload has ended.
	OnReload func() (done func()) // may be nil
	Log      *slog.Logger
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
	asked   chan chan<- ReloadReport // requests of Reload

	// The fields below are used only by the goroutine of reloadLoop.
	lastRead *config.Loaded // last valid configuration that was read
	current  *config.Config // in force
	source   string         // file of the current configuration, "" = none
	local    bool           // source was found in the working directory and requires an approval
	watched  []string       // files that watcher watches
	refused  bool           // the last read failed
	queued   reloadReason   // reason for a further reload, found while waiting for new backends
	logged   loggedProblems // about the file, as it was read last

	file atomic.Pointer[FileState]
}

// loggedProblems are problems that were logged, and that are logged again only on request.
type loggedProblems struct {
	warnings    []string // about the current configuration
	held        []string // of backends that keep their old entry
	needRestart []string // keys whose changes need a restart
	refusal     string   // error text of the last failed read
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
	r := &Reloader{
		Options: o, log: o.Log, watcher: newFileWatcher(o.Log),
		asked:    make(chan chan<- ReloadReport),
		lastRead: o.Initial, current: o.Initial.Config, source: o.Initial.Source,
		local: o.Initial.Local, logged: loggedProblems{warnings: o.Initial.Warnings},
	}
	r.publishFile(nil)
	return r
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
		var asked chan<- ReloadReport
		if r.queued == none {
			select {
			case <-ctx.Done():
				return
			case <-r.sighup:
				r.queued = requested
			case asked = <-r.asked:
				r.queued = requested
			case <-r.watcher.changed:
				r.queued = fileChanged
			}
		}
		reason := r.queued
		r.queued = none
		result := r.reload(ctx, reason == requested)
		if reason == requested {
			r.retryFailed()
		}
		if asked != nil {
			asked <- result
		}
	}
}

// Reload reloads the configuration as SIGHUP does, and waits until the changes are applied and new
// backends are ready or have failed. It returns ctx.Err() if ctx is done first; the reload then
// continues. It may be called concurrently while Run runs.
func (r *Reloader) Reload(ctx context.Context) (ReloadReport, error) {
	result := make(chan ReloadReport, 1)
	select {
	case r.asked <- result:
	case <-ctx.Done():
		return ReloadReport{}, ctx.Err()
	}
	select {
	case done := <-result:
		return done, nil
	case <-ctx.Done():
		return ReloadReport{}, ctx.Err()
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

// reload reads the file and applies the changes. If requested is true, the outcome is logged in any
// case.
func (r *Reloader) reload(ctx context.Context, requested bool) (result ReloadReport) {
	began := time.Now()
	r.noteLockChange()
	if requested {
		r.awaitContent(ctx)
	} else if r.isUnchanged() {
		r.logUnchanged(r.source, false)
		return
	}
	if r.OnReload != nil {
		defer r.OnReload()()
	}
	next, changes, pair, err := r.read(ctx, requested)
	if ctx.Err() != nil { // the error may be that of a command that was killed
		return
	}
	if err != nil {
		// Without a file the watcher reports every change at the search paths. The same error is
		// therefore logged again only if the reload was requested.
		if text := err.Error(); requested || r.source != "" || text != r.logged.refusal {
			r.refuse(err)
			r.logged.refusal = text
		}
		r.refused = true
		r.publishFile(err)
		return ReloadReport{File: r.source, Problems: problemsOf(err)}
	}
	r.logged.refusal = ""
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
	isNew := !slices.Equal(changes.NeedRestart, r.logged.needRestart)
	if len(changes.NeedRestart) > 0 && (requested || isNew) {
		r.log.Warn("changes not applied until a restart",
			"changed", strings.Join(changes.NeedRestart, ", "))
	}
	r.logged.needRestart = changes.NeedRestart
	r.publishFile(nil)
	return ReloadReport{File: r.source, Changes: changes, NotReady: r.notReady(changes)}
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

// appliesChanges reports whether any of the changes can be applied without a restart.
func (r *Reloader) appliesChanges(changes config.Changes, pair *certificate) bool {
	return changes.AnyBackend() || len(changes.Applied) > 0 || !r.Certificate.isCurrent(pair)
}

// File returns the state of the configuration file. It may be called concurrently.
func (r *Reloader) File() *FileState { return r.file.Load() }

// publishFile updates the FileState. err is the reason why the file was refused, nil if it was not.
func (r *Reloader) publishFile(err error) {
	changed := make(chan struct{})
	before := r.file.Swap(&FileState{
		Source: r.source, Problems: problemsOf(err), NeedRestart: r.logged.needRestart,
		InForce: r.current, Changed: changed,
		changed: changed, lastRead: r.lastRead, unchanged: r.Unchanged,
	})
	if before != nil {
		close(before.changed)
	}
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
