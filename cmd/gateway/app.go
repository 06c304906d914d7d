package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/audit"
	"mcpgateway/internal/config"
	"mcpgateway/internal/gctune"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/reload"
)

// flags are those that all verbs have.
type flags struct {
	stdio
	config, logLevel, logFormat, state string
	listen                             string        // of serve
	onStdio                            bool          // likewise: also if it listens
	served                             bool          // serve has come so far
	timeout                            time.Duration // of check, tools and call: how long the backends may take to start; 0 = no limit
	sighup                             *reload.SIGHUP
	hurry                              *hurry
	mask                               *logging.Mask // of the gateway that was put together; nil = none yet
}

// load reads the configuration, with the flags laid over it. If gateway.yaml of the working
// directory is not approved, load asks on a terminal.
func (f *flags) load() (*config.Loaded, error) {
	return loadFrom(config.Options{Path: f.config, Flags: f.set(), VariableNames: variables(), Approve: f.approval(true)})
}

// loadFrom loads a configuration, and adds warnings about paths in it that are not there.
func loadFrom(o config.Options) (*config.Loaded, error) {
	l, err := config.Load(o)
	if err != nil {
		return nil, err
	}
	l.Config.StateDir = absolute(l.Config.StateDir)
	if errs := auditOverwrites(l); len(errs) > 0 {
		return nil, errs
	}
	l.Warnings = append(l.Warnings, missingPaths(l)...)
	return l, nil
}

// variables returns the names of the variables that are set.
func variables() (names []string) {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value != "" {
			names = append(names, name)
		}
	}
	return names
}

// reload reads the file at path, or searches for one if path is "". It never asks. Local says
// that the file was found in the working directory, and must be approved.
func (f *flags) reload(path string, local bool) (*config.Loaded, error) {
	return loadFrom(config.Options{Path: path, Local: local, Flags: f.set(), VariableNames: variables(), Approve: f.approval(false)})
}

// unchanged reports whether reload would read what l was made of.
func (f *flags) unchanged(l *config.Loaded) bool {
	return l.Unchanged(config.Options{Path: l.Source, Local: l.Local, Approve: f.approval(false)})
}

// set are the flags that were given, by the keys that they set.
func (f *flags) set() map[string]string {
	set := make(map[string]string)
	for key, value := range map[string]string{
		"log.level": f.logLevel, "log.format": f.logFormat, "state": f.state, "listen": f.listen,
	} {
		if value != "" {
			set[key] = value
		}
	}
	return set
}

// given are the keys that flags have set.
func (f *flags) given() []string { return slices.Sorted(maps.Keys(f.set())) }

// An app is the gateway put together: everyone who works in it, introduced to
// everyone they need.
type app struct {
	*config.Loaded
	log     *slog.Logger
	level   slog.LevelVar // of log
	mask    *logging.Mask
	set     *backends.Set
	gateway *gateway.Gateway
	journal *audit.Journal

	certificate reload.Certificates

	lastNames catalog.Assignments // who had each name in the last run

	auto string // the token that auto stands for, "" = there is none

	via string // how this process names itself to HTTP servers, which may be itself

	waited time.Duration // how long the backends were waited for, if that was the limit; else 0

	closers []func()
}

// tune changes a configuration for the needs of a verb.
type tune func(*config.Config)

// indoors is for the verbs that are their own only client.
func indoors(c *config.Config) { c.Listen = "" }

// quiet is for the verbs that people read: only what went wrong is logged,
// unless they asked for more, and calls are on record only where there is a
// file for it.
func (f *flags) quiet(c *config.Config) {
	if f.logLevel == "" && os.Getenv("GATEWAY_LOG_LEVEL") == "" {
		c.Log.Level = "error"
	}
	if c.Log.Level == "error" || c.Log.Level == "warn" {
		c.Audit.File = cmp.Or(c.Audit.File, config.PathNone)
	}
}

// noFile is what a user is told who has no configuration.
const noFile = "no configuration found: serving the embedded demo backend; to serve your own, write gateway.yaml " +
	"(gateway import -o gateway.yaml takes over what other clients have) or name a file with --config"

// laterFile is what serve adds to noFile.
const laterFile = "; a file that is written later is loaded"

// sayFile says which file was read, if there is one; that there is none is said anyway.
func (f *flags) sayFile(a *app) {
	if a.Source == "" {
		return
	}
	file, err := filepath.Abs(a.Source)
	if err != nil {
		file = a.Source
	}
	fmt.Fprintf(f.err, "gateway: configuration: %s\n", file)
}

// sayFileToPerson is sayFile where stderr is a terminal: what a tool prints may be
// gathered together with stderr, and read as one.
func (f *flags) sayFileToPerson(a *app, machine bool) {
	if !machine && isTerminal(f.err) {
		f.sayFile(a)
	}
}

// A mode is what a verb needs of the backends.
type mode struct {
	once bool // a backend that ends is not started again
	anew bool // what was listed earlier does not count
}

// open puts the gateway together.
func (f *flags) open(m mode, tunes ...tune) (*app, error) {
	loaded, err := f.load()
	if err != nil {
		return nil, err
	}
	chain, err := beneath(loaded.Source, os.Getenv(aboveEnv))
	if err != nil {
		if m.once {
			err = hinted{err, "if you mean to run it beneath a gateway, unset " + aboveEnv}
		}
		return nil, err
	}
	c := loaded.Config
	for _, t := range tunes {
		t(c)
	}
	if loaded.Source == "" && len(tunes) > 0 {
		fmt.Fprintf(f.err, "gateway: %s\n", noFile)
	}
	a := &app{Loaded: loaded, mask: logging.NewMask(config.Secrets(c)...), via: "mcp-gateway-" + rand.Text()}
	f.mask = a.mask
	a.openLog(f.err)
	a.openNames()
	info := mcp.Implementation{Name: "mcp-gateway", Version: version}
	a.set = backends.New(backends.Options{
		StderrLevel:  stderrLevels[a.Config.Log.Stderr],
		Backends:     c.Backends,
		Catalog:      catalogOptions(c),
		CatalogWait:  c.Catalog.Wait,
		MaxMessage:   int(c.Limits.Message),
		StateDir:     c.StateDir,
		NameOwners:   a.lastNames,
		ProcessID:    reload.OwnProcess(),
		HasExited:    reload.ProcessExited,
		ClientInfo:   info,
		Via:          a.via,
		ChildEnv:     map[string]string{aboveEnv: chain},
		Mask:         a.mask.String,
		NoRestart:    m.once,
		IgnoreCache:  m.anew,
		SingleClient: c.Listen == "",
		Log:          a.log,

		StartParallel: c.Limits.StartParallel,
	})
	if err := a.openJournal(); err != nil {
		a.close()
		return nil, err
	}
	a.gateway = gateway.New(gateway.Options{
		Backends:            a.set,
		Observers:           a.observers(),
		Info:                info,
		MaxInFlight:         c.Limits.InFlight,
		MaxStatelessClients: c.Limits.Sessions,
		DrainTimeout:        c.Limits.Drain,
		Log:                 a.log,
		Mask:                a.mask.String,
	})
	return a, nil
}

// catalogOptions says how the tools of all backends become one list.
func catalogOptions(c *config.Config) catalog.Options {
	var whole *string
	if c.Instructions != "" {
		whole = new(string)
		*whole = instructionsOf(c.Instructions)
	}
	each := make(map[string]string)
	for _, b := range c.Backends {
		if b.Instructions != "" {
			each[b.Name] = instructionsOf(b.Instructions)
		}
	}
	return catalog.Options{
		Instructions: whole, BackendInstructions: each,
		Prefix:    catalog.Prefix(c.Catalog.Prefix),
		Separator: c.Catalog.Separator,
		NameLimit: c.Catalog.NameLimit,
		PageSize:  int(c.Limits.Page),
	}
}

// instructionsOf returns the text that instructions in the configuration stands for.
func instructionsOf(text string) string {
	if text == config.NoInstructions {
		return ""
	}
	return text
}

// levelOf returns the level from which on is logged.
func levelOf(c *config.Config) slog.Level {
	level, _ := logging.ParseLevel(c.Log.Level) // validated
	return level
}

// stderrLevels are the levels of log.stderr. At "off" no line is logged, whatever log.level is.
var stderrLevels = map[string]slog.Level{"info": slog.LevelInfo, "debug": slog.LevelDebug, "off": slog.LevelDebug - 4}

// flushLogs is how long the end waits for stderr to be read.
const flushLogs = time.Second

func (a *app) openLog(w io.Writer) {
	a.level.Set(levelOf(a.Config))
	sink := logging.OpenSink(w, logging.SinkOptions{Lost: logging.FormatLost(a.Config.Log.Format)})
	a.log = logging.New(sink, logging.Options{Level: &a.level, Format: a.Config.Log.Format, Mask: a.mask})
	a.closers = append(a.closers, func() { _ = sink.Close(flushLogs) }, logging.CaptureStandardLog(a.log))
	for _, w := range a.Warnings {
		a.log.Warn(w)
	}
}

// observers are those who see each call begin and end.
func (a *app) observers() []gateway.Observer {
	if a.Config.Audit.File == config.PathNone {
		return nil
	}
	return []gateway.Observer{gateway.AuditObserver(a.journal)}
}

// openJournal has the audit records written to their file, or into the log. A journal that nobody observes
// calls for has none to write.
func (a *app) openJournal() error {
	o := audit.Options{Payloads: audit.Payloads(a.Config.Audit.Payloads), Mask: a.mask.String}
	a.journal = audit.New(a.log, o)
	if path := a.Config.Audit.File; path != "" && path != config.PathNone {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			return a.Loaded.PathError("audit.file", path, errors.New("is a pipe, and would wait for a reader"), "name a file")
		}
		a.warnOfOthers(path)
		file, err := logging.OpenFile(path, logging.FileOptions{})
		if err != nil {
			return a.Loaded.PathError("audit.file", path, err, "make the directory writable, or set audit.file to another path")
		}
		a.closers = append(a.closers, func() { file.Close() })
		a.journal = audit.NewLines(&telling{Writer: file, log: a.log}, o)
	}
	return nil
}

// warnOfOthers warns of an audit file that is there and that other users can read or change. A new one is
// for its owner alone.
func (a *app) warnOfOthers(path string) {
	path = absolute(path)
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || runtime.GOOS == "windows" {
		return
	}
	why := ""
	switch mode := info.Mode().Perm(); {
	case mode&0o044 != 0 && mode&0o022 != 0:
		why = "other users can read and change the audit file"
	case mode&0o044 != 0:
		why = "other users can read the audit file"
	case mode&0o022 != 0:
		why = "other users can change the audit file"
	default:
		return
	}
	if a.Config.Audit.Payloads != "none" {
		why += ", and the payloads in it may hold secrets"
	}
	a.log.Warn(why+": run chmod 600 "+shellWord(path), "file", path)
}

// run runs everything around work, which it gets a context for, and ends all of
// it when work is done: first the backends, then the journal, then the log.
func (a *app) run(ctx context.Context, work func(context.Context) error) error {
	defer a.close()
	defer a.debugDoor()()
	journal, endJournal := context.WithCancel(context.Background())
	backends, endBackends := context.WithCancel(context.Background())
	var written, running sync.WaitGroup
	written.Go(func() { _ = a.journal.Run(journal) })
	running.Go(func() { _ = a.set.Run(backends, a.gateway) })
	running.Go(func() { _ = a.gateway.Run(backends) })
	running.Go(func() { gctune.Run(backends) })

	err := work(ctx)
	endBackends()
	running.Wait()
	endJournal()
	written.Wait()
	if n := a.journal.Lost(); n > 0 {
		a.log.Error("audit records were lost", "records", n)
	}
	return err
}

// close closes what open opened, the last first.
func (a *app) close() {
	for i := len(a.closers) - 1; i >= 0; i-- {
		a.closers[i]()
	}
}
