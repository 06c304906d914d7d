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

// A cli is the context of a command: its standard streams, flags and signals.
type cli struct {
	stdio
	config, logLevel, logFormat, state string // flags of all commands

	listen    string // flag of serve
	alsoStdio bool   // flag of serve: serve stdio in addition to HTTP
	serving   bool   // the gateway serves clients

	timeout time.Duration // flag of check, tools and call: limit for starting backends, 0 = none

	sighup       *reload.SIGHUP
	secondSignal *signalHandler
	mask         *logging.Mask // mask of the last app; nil = no app was opened yet
}

// loadConfig loads the configuration, which flags override. If gateway.yaml in the working
// directory is not approved, it asks the user, or returns an error if stdin or stderr is not a
// terminal.
func (c *cli) loadConfig() (*config.Loaded, error) {
	return loadFrom(config.Options{
		Path: c.config, Flags: c.flagValues(), VariableNames: variableNames(),
		Approve: c.approver(true),
	})
}

// loadFrom loads a configuration and makes the path of the state directory absolute. It adds a
// warning for each path in the configuration that does not exist or cannot be accessed. It returns
// an error if audit.file is also another file of the gateway.
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

// variableNames returns the names of the environment variables that are not empty.
func variableNames() (names []string) {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value != "" {
			names = append(names, name)
		}
	}
	return names
}

// reloadConfig loads the file at path, or searches for one if path is "". It never asks the user.
// local is true if the file was found in the working directory and must be approved.
func (c *cli) reloadConfig(path string, local bool) (*config.Loaded, error) {
	return loadFrom(config.Options{
		Path: path, Local: local, Flags: c.flagValues(), VariableNames: variableNames(),
		Approve: c.approver(false),
	})
}

// configUnchanged reports whether reloadConfig would read the same text as l.
func (c *cli) configUnchanged(l *config.Loaded) bool {
	return l.Unchanged(config.Options{Path: l.Source, Local: l.Local, Approve: c.approver(false)})
}

// flagValues returns the values of the flags that are set and not empty, by configuration key.
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

// flagKeys returns the configuration keys that flags set, sorted.
func (c *cli) flagKeys() []string { return slices.Sorted(maps.Keys(c.flagValues())) }

// An app is a configured gateway with its backends, log and audit journal.
type app struct {
	*config.Loaded
	log      *slog.Logger
	level    slog.LevelVar // level of log
	mask     *logging.Mask
	backends *backends.Set
	gateway  *gateway.Gateway
	journal  *audit.Journal

	certificate reload.Certificates

	previousNames catalog.Assignments // the backend of each name in the last run

	autoToken string // the token that replaces auto in auth.tokens, "" = none

	via string // name of this process in requests to HTTP servers, to detect recursion

	timedOutAfter time.Duration // timeout for the start of backends if it was exceeded, else 0

	closers []func()
}

// A configOverride changes the configuration for a command.
type configOverride func(*config.Config)

// stdioOnly is the configOverride of commands that serve only stdin and stdout, or no client.
func stdioOnly(c *config.Config) { c.Listen = "" }

// quietLog is the configOverride of commands that print results. Only errors are logged, unless
// --log-level or GATEWAY_LOG_LEVEL sets the level. At the levels error and warn, audit records are
// written only if audit.file is set.
func (c *cli) quietLog(cfg *config.Config) {
	if c.logLevel == "" && os.Getenv("GATEWAY_LOG_LEVEL") == "" {
		cfg.Log.Level = "error"
	}
	if cfg.Log.Level == "error" || cfg.Log.Level == "warn" {
		cfg.Audit.File = cmp.Or(cfg.Audit.File, config.PathNone)
	}
}

// noFileMessage is logged or printed if no configuration was found.
const noFileMessage = "no configuration found: serving the embedded demo backend; " +
	"to serve your own, write gateway.yaml (gateway import -o gateway.yaml copies the servers " +
	"of other clients) or name a file with --config"

// laterFileMessage is appended to noFileMessage by serve.
const laterFileMessage = "; a file that is written later is loaded"

// printSource prints the path of the configuration file. It prints nothing if there is no file,
// because open has printed noFileMessage.
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

// printSourceOnTerminal calls printSource if stderr is a terminal and the output is not meant for a
// program: a program may read stdout and stderr as one text.
func (c *cli) printSourceOnTerminal(a *app, machine bool) {
	if !machine && isTerminal(c.err) {
		c.printSource(a)
	}
}

// A runMode controls the backends of a command.
type runMode struct {
	noRestart   bool // a backend that exits is not restarted
	ignoreCache bool // lists in the cache are not used
}

// open loads the configuration, changes it with tunes, and returns an app. It starts only the log.
// It prints or logs warnings, and opens audit.file. It returns an error if the configuration is
// invalid, if checkRecursion finds a loop, or if audit.file cannot be opened.
func (c *cli) open(m runMode, tunes ...configOverride) (*app, error) {
	loaded, err := c.loadConfig()
	if err != nil {
		return nil, err
	}
	chain, err := checkRecursion(loaded.Source, os.Getenv(ancestorsEnv))
	if err != nil {
		if m.noRestart {
			hint := "to run it as a child of a gateway anyway, unset " + ancestorsEnv
			err = hintedError{err, hint}
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
	a := &app{
		Loaded: loaded, mask: logging.NewMask(config.Secrets(cfg)...),
		via: "mcp-gateway-" + rand.Text(),
	}
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

// catalogOptions returns the catalog options of a configuration.
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

// instructionsOf converts a value of the key instructions: none becomes "".
func instructionsOf(text string) string {
	if text == config.NoInstructions {
		return ""
	}
	return text
}

// levelOf returns the log level.
func levelOf(c *config.Config) slog.Level {
	level, _ := logging.ParseLevel(c.Log.Level) // validated by config
	return level
}

// stderrLevels are the levels for the values of log.stderr. The level for "off" is below every
// log.level.
var stderrLevels = map[string]slog.Level{
	"info": slog.LevelInfo, "debug": slog.LevelDebug, "off": slog.LevelDebug - 4,
}

// logFlushTimeout limits how long close waits until the reader of stderr has read the rest of the
// log.
const logFlushTimeout = time.Second

func (a *app) openLog(w io.Writer) {
	a.level.Set(levelOf(a.Config))
	sink := logging.OpenSink(w, logging.SinkOptions{Lost: logging.FormatLost(a.Config.Log.Format)})
	a.log = logging.New(sink, logging.Options{
		Level: &a.level, Format: a.Config.Log.Format, Mask: a.mask,
	})
	closeSink := func() { _ = sink.Close(logFlushTimeout) }
	a.closers = append(a.closers, closeSink, logging.CaptureStandardLog(a.log))
	for _, w := range a.Warnings {
		a.log.Warn("configuration warning", "text", w)
	}
}

// observers returns the observers of calls.
func (a *app) observers() []gateway.Observer {
	if a.Config.Audit.File == config.PathNone {
		return nil
	}
	return []gateway.Observer{gateway.AuditObserver(a.journal)}
}

// openJournal opens the audit journal, which writes to audit.file or to the log. If audit.file is
// none, the journal gets no records. openJournal returns an error if audit.file is a pipe or cannot
// be opened.
func (a *app) openJournal() error {
	o := audit.Options{Payloads: audit.Payloads(a.Config.Audit.Payloads), Mask: a.mask.String}
	a.journal = audit.New(a.log, o)
	if path := a.Config.Audit.File; path != "" && path != config.PathNone {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			err := errors.New("is a pipe: the gateway would wait until another process reads it")
			return a.Loaded.PathError("audit.file", path, err, "use a regular file")
		}
		a.warnAuditFileMode(path)
		file, err := logging.OpenFile(path, logging.FileOptions{})
		if err != nil {
			return a.Loaded.PathError("audit.file", path, err,
				"make the directory writable, or set audit.file to another path")
		}
		a.closers = append(a.closers, func() { file.Close() })
		a.journal = audit.NewLines(&failureLoggingWriter{Writer: file, log: a.log}, o)
	}
	return nil
}

// warnAuditFileMode warns if other users can read or change an existing audit file, except on
// Windows. A new audit file has mode 0600.
func (a *app) warnAuditFileMode(path string) {
	path = absolutePath(path)
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || runtime.GOOS == "windows" {
		return
	}
	message := ""
	switch mode := info.Mode().Perm(); {
	case mode&0o044 != 0 && mode&0o022 != 0:
		message = "audit file readable and writable by other users"
	case mode&0o044 != 0:
		message = "audit file readable by other users"
	case mode&0o022 != 0:
		message = "audit file writable by other users"
	default:
		return
	}
	hint := "run chmod 600 " + shellWord(path)
	if a.Config.Audit.Payloads != "none" {
		hint += "; payloads in the file may contain secrets"
	}
	a.log.Warn(message, "file", path, "text", hint)
}

// run runs the backends, the gateway and the journal while work runs. When work has returned, run
// ends the backends and the gateway, then the journal, closes what open has opened, and returns the
// error of work.
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
		a.log.Error("audit records lost", "records", n)
	}
	return err
}

// close closes the files and logs that open has opened, in reverse order.
func (a *app) close() {
	for i := len(a.closers) - 1; i >= 0; i-- {
		a.closers[i]()
	}
}
