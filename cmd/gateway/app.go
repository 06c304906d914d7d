package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/gateway"
	"mcpgateway/internal/activity"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/gctune"
	"mcpgateway/internal/keyring"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/oauthclient"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/reload"
	"mcpgateway/internal/tracing"
)

// An appLog is the log of an app.
type appLog struct {
	log   *slog.Logger
	level slog.LevelVar // level of log
	lines *logging.Ring // the latest lines of log; nil = they are not kept
}

// An app is a configured gateway with its backends, log and audit journal.
type app struct {
	*config.Loaded
	appLog
	mask     *logging.Mask
	backends *backends.Set
	gateway  *gateway.Gateway
	recorders
	logins *oauthclient.Store
	pages  *loginPages // nil = there are none
	rates  ratelimit.RateLimiter

	// the client on stdin, and the client of tools and call; nil = no profile
	client *principal.Principal

	previousNames catalog.Assignments // the backend of each name in the last run

	adminToken string // of admin.listen; "" = there is none

	via string // name of this process in requests to HTTP servers, to detect recursion

	closers []func()
}

// recorders are what records the calls of clients.
type recorders struct {
	journal  *auditRecords
	activity *activity.Recorder  // nil = calls are not counted
	traces   *tracing.OTelTracer // nil = calls are not traced
}

// A configOverride changes the configuration for a command.
type configOverride func(*config.Config)

// stdioOnly is the configOverride of commands that serve only stdin and stdout, or no client.
func stdioOnly(c *config.Config) { c.Listen = "" }

// noFileMessage is logged or printed if no configuration was found.
const noFileMessage = "no configuration found: serving the embedded demo backend; " +
	"to serve your own, write gateway.yaml (gateway import -o gateway.yaml copies the servers " +
	"of other clients) or name a file with --config"

// laterFileMessage is appended to noFileMessage by serve.
const laterFileMessage = "; a file that is written later is loaded"

// A runMode controls the backends of a command.
type runMode struct {
	noRestart   bool // a backend that exits is not restarted
	ignoreCache bool // lists in the cache are not used
	// clients are served: calls are counted, and clients are asked to open pages at which users log
	// in to backends
	serving bool
	// the lock file is read, and has no effect; the command reports its errors
	ignoreLock bool
	noRecords  bool // backends store nothing in the state directory
	// name of the principal whose logins are used; "" = the gateway's
	loginAs string
}

// open loads the configuration, changes it with tunes, and returns an app. It starts only the log.
// It prints or logs warnings, reads the lock file, and opens audit.file. It returns an error if the
// configuration is invalid, if checkRecursion finds a loop, or if audit.file cannot be opened.
func (c *cli) open(
	ctx context.Context, m runMode, tunes ...configOverride,
) (*app, error) {
	loaded, err := c.source.load(ctx)
	if err != nil {
		return nil, err
	}
	return c.openLoaded(loaded, m, tunes...)
}

// openLoaded is open with a configuration that is already loaded. It changes the configuration.
func (c *cli) openLoaded(
	loaded *config.Loaded, m runMode, tunes ...configOverride,
) (*app, error) {
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
	if a.client, err = clientWithProfile(cfg, c.source.profile); err != nil {
		return nil, err
	}
	a.mask.SetTokenOwners(tokenOwners(cfg.Backends, nil)...)
	c.mask = a.mask
	if m.serving {
		a.lines = new(logging.Ring)
	}
	a.openLog(c.err)
	a.previousNames = loadNameRecord(cfg.StateDir, a.Source, a.log)
	a.logins = openLogins(cfg.StateDir)
	var loginPage func(string, string, *principal.Principal, *oauthclient.Authorization) (
		string, <-chan struct{}, error)
	var completeLogin func(*oauthclient.Authorization)
	if m.serving {
		a.pages = newLoginPages(a.mask)
		a.closers = append(a.closers, a.pages.close)
		loginPage, completeLogin = a.pages.openPage, a.pages.complete
	}
	var loginAs *principal.Principal
	if slices.ContainsFunc(cfg.Backends, hasLoginsOfClients) {
		if loginAs, err = findPrincipal(cfg, m.loginAs); err != nil {
			a.close()
			return nil, err
		}
	}
	var lock *pins.Lock
	all := cfg.Backends
	if m.ignoreLock {
		all = withoutPins(all)
	} else {
		lock = readLock(a.Source, a.log)
	}
	stateDir := cfg.StateDir
	if m.noRecords {
		stateDir = ""
	}
	info := mcp.Implementation{Name: "mcp-gateway", Version: version}
	a.backends = backends.New(backends.Options{
		StderrLevel:   stderrLevels[a.Config.Log.Stderr],
		StderrContext: logging.OutputContext(),
		Backends:      all,
		Catalog:       catalogOptions(cfg),
		CatalogWait:   cfg.Catalog.Wait,
		Profiles:      cfg.Profiles,
		MaxMessage:    int(cfg.Limits.Message),
		StateDir:      stateDir,
		NameOwners:    a.previousNames,
		Lock:          lock,
		ProcessID:     reload.OwnProcess(),
		HasExited:     reload.ProcessExited,
		ClientInfo:    info,
		Via:           a.via,
		ChildEnv:      map[string]string{ancestorsEnv: chain},
		Mask:          a.mask.String,
		NoRestart:     m.noRestart,
		IgnoreCache:   m.ignoreCache,
		SingleClient:  cfg.Listen == "",
		Logins:        a.logins,
		LoginAs:       loginAs,
		LoginPage:     loginPage,

		CompleteLogin:   completeLogin,
		OnSecret:        func(owner, secret string) { a.mask.AddToken(tokenOwner(owner), secret) },
		OnSecretsUnused: func(owner string) { a.mask.ReleaseTokens(tokenOwner(owner)) },
		Log:             a.log,

		StartParallel: cfg.Limits.StartParallel,
	})
	journal, err := openAudit(loaded, a.log, a.mask, c.reopen)
	if err != nil {
		a.close()
		return nil, err
	}
	a.journal = journal
	a.closers = append(a.closers, journal.close)
	var observers []gateway.Observer
	if cfg.Audit.File != config.PathNone {
		observers = append(observers, gateway.AuditObserver(journal.Journal))
	}
	if m.serving {
		a.openAdminToken()
		a.activity = activity.New()
		observers = append(observers, a.activity)
	}
	setBackendRates(&a.rates, cfg)
	var tracer gateway.Tracer
	if m.serving && a.openTraces() {
		tracer = a.traces
	}
	a.gateway = gateway.New(gateway.Options{
		Backends:            a.backends,
		Observers:           observers,
		Tracer:              tracer,
		Info:                info,
		MaxInFlight:         cfg.Limits.InFlight,
		MaxStatelessClients: cfg.Limits.Sessions,
		DrainTimeout:        cfg.Limits.Drain,
		Rates:               &a.rates,
		Log:                 a.log,
		Mask:                a.mask.String,
	})
	return a, nil
}

// clientWithProfile returns a client with a profile; nil = no profile.
func clientWithProfile(c *config.Config, profile string) (*principal.Principal, error) {
	if profile == "" {
		return nil, nil
	}
	if _, ok := c.Profiles[profile]; !ok {
		names := slices.Sorted(maps.Keys(c.Profiles))
		hint := "the configuration has no profiles"
		if len(names) > 0 {
			hint = "the profiles are: " + reload.NameList(names)
		}
		return nil, usageError{fmt.Errorf("no profile is named %q", profile), hint}
	}
	var client *principal.Principal
	return client.WithProfile(profile), nil
}

// view returns the current view of the client.
func (a *app) view() *catalog.View { return a.backends.ViewFor(a.client) }

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

// openTraces sets traces, and reports whether calls are to be traced.
func (a *app) openTraces() bool {
	settings, warnings := tracing.Load(a.Config.OTel, os.LookupEnv)
	for _, w := range warnings {
		a.log.Warn("configuration warning", "text", w)
	}
	if settings == nil {
		return false
	}
	a.mask.Add(settings.Secrets()...)
	a.traces = tracing.New(tracing.Options{
		Settings: settings, Version: version, Mask: a.mask.String, Log: a.log,
	})
	a.log.Info("calls are traced", "server", settings.Endpoint(), "text",
		"recorded traces: "+settings.Sampling())
	return true
}

// setSecrets replaces the secrets that are masked by those of a configuration.
func (a *app) setSecrets(secrets ...[]string) {
	a.mask.SetSecrets(slices.Concat(append(secrets, a.traces.Secrets(), a.adminSecrets())...)...)
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
		Ring: a.lines,
	})
	closeSink := func() { _ = sink.Close(logFlushTimeout) }
	a.closers = append(a.closers, closeSink, logging.CaptureStandardLog(a.log))
	for _, w := range a.Warnings {
		a.log.Warn("configuration warning", "text", w)
	}
}

// run runs the backends, the gateway and the journal while work runs. When work has returned, run
// ends the backends and the gateway, then the journal, closes what open has opened, and returns the
// error of work.
func (a *app) run(ctx context.Context, work func(context.Context) error) error {
	defer a.close()
	defer serveDebug(a.log)()
	journal, endJournal := context.WithCancel(context.Background())
	backends, endBackends := context.WithCancel(context.Background())
	var written, running sync.WaitGroup
	written.Go(func() { a.journal.run(journal) })
	if a.traces != nil {
		written.Go(func() { a.traces.Run(journal) })
	}
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

// loginSecrets are the secrets of logins in the keyring.
type loginSecrets struct{ *keyring.Keyring }

// Delete implements oauthclient.SecretStore.
func (l loginSecrets) Delete(name string) error {
	if err := l.Keyring.Delete(name); !errors.Is(err, keyring.ErrNotFound) {
		return err
	}
	return nil
}

// keyringTimeout bounds the wait for the keyring, which may ask the user for a password.
const keyringTimeout = 10 * time.Second

// openLogins returns the store of the logins at servers that use OAuth. Without a state directory,
// logins end with the process.
func openLogins(stateDir string) *oauthclient.Store {
	if stateDir == "" {
		return oauthclient.NewStore("", nil)
	}
	return oauthclient.NewStore(filepath.Join(stateDir, "logins"),
		loginSecrets{keyring.New(keyringTimeout)})
}
