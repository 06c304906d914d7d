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

// cli are those that all verbs have.
type cli struct {
	stdio
	config, logLevel, logFormat, state string
	listen                             string        // of serve
	alsoStdio                          bool          // likewise: also if it listens
	serving                            bool          // serve has come so far
	timeout                            time.Duration // of check, tools and call: how long the backends may take to start; 0 = no limit
	sighup                             *reload.SIGHUP
	secondSignal                       *signalHandler
	mask                               *logging.Mask // of the gateway that was put together; nil = none yet
}

// loadConfig reads the configuration, with the flags laid over it. If gateway.yaml of the working
// directory is not approved, load asks on a terminal.
func (c *cli) loadConfig() (*config.Loaded, error) {
	return loadFrom(config.Options{Path: c.config, Flags: c.flagValues(), VariableNames: variableNames(), Approve: c.approver(true)})
}

// loadFrom loads a configuration, and adds warnings about paths in it that are not there.
func loadFrom(o config.Options) (*config.Loaded, error) {
	l, err := config.Load(o)
	if err != nil {
		return nil, err
	}
	l.Config.StateDir = absolutePath(l.Config.StateDir)
	if errs := auditFileConflicts(l); len(errs) > 0 {
		return nil, errs
	}
	l.Warnings = append(l.Warnings, missingPaths(l)...)
	return l, nil
}

// variableNames returns the names of the variables that are set.
func variableNames() (names []string) {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value != "" {
			names = append(names, name)
		}
	}
	return names
}

// reloadConfig reads the file at path, or searches for one if path is "". It never asks. Local says
// that the file was found in the working directory, and must be approved.
func (c *cli) reloadConfig(path string, local bool) (*config.Loaded, error) {
	return loadFrom(config.Options{Path: path, Local: local, Flags: c.flagValues(), VariableNames: variableNames(), Approve: c.approver(false)})
}

// configUnchanged reports whether reload would read what l was made of.
func (c *cli) configUnchanged(l *config.Loaded) bool {
	return l.Unchanged(config.Options{Path: l.Source, Local: l.Local, Approve: c.approver(false)})
}

// flagValues are the flags that were given, by the keys that they set.
func (c *cli) flagValues() map[string]string {
	set := make(map[string]string)
	for key, value := range map[string]string{
		"log.level": c.logLevel, "log.format": c.logFormat, "state": c.state, "listen": c.listen,
	} {
		if value != "" {
			set[key] = value
		}
	}
	return set
}

// flagKeys are the keys that flags have set.
func (c *cli) flagKeys() []string { return slices.Sorted(maps.Keys(c.flagValues())) }

// An app is the gateway put together: everyone who works in it, introduced to
// everyone they need.
type app struct {
	*config.Loaded
	log      *slog.Logger
	level    slog.LevelVar // of log
	mask     *logging.Mask
	backends *backends.Set
	gateway  *gateway.Gateway
	journal  *audit.Journal

	certificate reload.Certificates

	previousNames catalog.Assignments // who had each name in the last run

	autoToken string // the token that auto stands for, "" = there is none

	via string // how this process names itself to HTTP servers, which may be itself

	timedOutAfter time.Duration // how long the backends were waited for, if that was the limit; else 0

	closers []func()
}

// configOverride changes a configuration for the needs of a verb.
type configOverride func(*config.Config)

// stdioOnly is for the verbs that are their own only client.
func stdioOnly(c *config.Config) { c.Listen = "" }

// quietLog is for the verbs that people read: only what went wrong is logged,
// unless they asked for more, and calls are on record only where there is a
// file for it.
func (c *cli) quietLog(cfg *config.Config) {
	if c.logLevel == "" && os.Getenv("GATEWAY_LOG_LEVEL") == "" {
		cfg.Log.Level = "error"
	}
	if cfg.Log.Level == "error" || cfg.Log.Level == "warn" {
		cfg.Audit.File = cmp.Or(cfg.Audit.File, config.PathNone)
	}
}

// noFileMessage is what a user is told who has no configuration.
const noFileMessage = "no configuration found: serving the embedded demo backend; to serve your own, write gateway.yaml " +
	"(gateway import -o gateway.yaml takes over what other clients have) or name a file with --config"

// laterFileMessage is what serve adds to noFileMessage.
const laterFileMessage = "; a file that is written later is loaded"

// printSource says which file was read, if there is one; that there is none is said anyway.
func (c *cli) printSource(a *app) {
	if a.Source == "" {
		return
	}
	file, err := filepath.Abs(a.Source)
	if err != nil {
		file = a.Source
	}
	fmt.Fprintf(c.err, "gateway: configuration: %s\n", file)
}

// printSourceOnTerminal is sayFile where stderr is a terminal: what a tool prints may be
// gathered together with stderr, and read as one.
func (c *cli) printSourceOnTerminal(a *app, machine bool) {
	if !machine && isTerminal(c.err) {
		c.printSource(a)
	}
}

// A runMode is what a verb needs of the backends.
type runMode struct {
	noRestart   bool // a backend that ends is not started again
	ignoreCache bool // what was listed earlier does not count
}

// open puts the gateway together.
func (c *cli) open(m runMode, tunes ...configOverride) (*app, error) {
	loaded, err := c.loadConfig()
	if err != nil {
		return nil, err
	}
	chain, err := checkRecursion(loaded.Source, os.Getenv(ancestorsEnv))
	if err != nil {
		if m.noRestart {
			err = hintedError{err, "if you mean to run it beneath a gateway, unset " + ancestorsEnv}
		}
		return nil, err
	}
	cfg := loaded.Config
	for _, t := range tunes {
		t(cfg)
	}
	if loaded.Source == "" && len(tunes) > 0 {
		fmt.Fprintf(c.err, "gateway: %s\n", noFileMessage)
	}
	a := &app{Loaded: loaded, mask: logging.NewMask(config.Secrets(cfg)...), via: "mcp-gateway-" + rand.Text()}
	c.mask = a.mask
	a.openLog(c.err)
	a.loadNameRecord()
	info := mcp.Implementation{Name: "mcp-gateway", Version: version}
	a.backends = backends.New(backends.Options{
		StderrLevel:  stderrLevels[a.Config.Log.Stderr],
		Backends:     cfg.Backends,
		Catalog:      catalogOptions(cfg),
		CatalogWait:  cfg.Catalog.Wait,
		MaxMessage:   int(cfg.Limits.Message),
		StateDir:     cfg.StateDir,
		NameOwners:   a.previousNames,
		ProcessID:    reload.OwnProcess(),
		HasExited:    reload.ProcessExited,
		ClientInfo:   info,
		Via:          a.via,
		ChildEnv:     map[string]string{ancestorsEnv: chain},
		Mask:         a.mask.String,
		NoRestart:    m.noRestart,
		IgnoreCache:  m.ignoreCache,
		SingleClient: cfg.Listen == "",
		Log:          a.log,

		StartParallel: cfg.Limits.StartParallel,
	})
	if err := a.openJournal(); err != nil {
		a.close()
		return nil, err
	}
	a.gateway = gateway.New(gateway.Options{
		Backends:            a.backends,
		Observers:           a.observers(),
		Info:                info,
		MaxInFlight:         cfg.Limits.InFlight,
		MaxStatelessClients: cfg.Limits.Sessions,
		DrainTimeout:        cfg.Limits.Drain,
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

// logFlushTimeout is how long the end waits for stderr to be read.
const logFlushTimeout = time.Second

func (a *app) openLog(w io.Writer) {
	a.level.Set(levelOf(a.Config))
	sink := logging.OpenSink(w, logging.SinkOptions{Lost: logging.FormatLost(a.Config.Log.Format)})
	a.log = logging.New(sink, logging.Options{Level: &a.level, Format: a.Config.Log.Format, Mask: a.mask})
	a.closers = append(a.closers, func() { _ = sink.Close(logFlushTimeout) }, logging.CaptureStandardLog(a.log))
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
		a.warnAuditFileMode(path)
		file, err := logging.OpenFile(path, logging.FileOptions{})
		if err != nil {
			return a.Loaded.PathError("audit.file", path, err, "make the directory writable, or set audit.file to another path")
		}
		a.closers = append(a.closers, func() { file.Close() })
		a.journal = audit.NewLines(&failureLoggingWriter{Writer: file, log: a.log}, o)
	}
	return nil
}

// warnAuditFileMode warns of an audit file that is there and that other users can read or change. A new one is
// for its owner alone.
func (a *app) warnAuditFileMode(path string) {
	path = absolutePath(path)
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
	defer a.serveDebug()()
	journal, endJournal := context.WithCancel(context.Background())
	backends, endBackends := context.WithCancel(context.Background())
	var written, running sync.WaitGroup
	written.Go(func() { _ = a.journal.Run(journal) })
	running.Go(func() { _ = a.backends.Run(backends, a.gateway) })
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
