package main

import (
	"context"
	"sync"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/reload"
)

// runReloading calls work. Until work returns, it reloads the configuration from source, keeps the
// record of names and the lock file up to date, and reports the state of the gateway to systemd.
func (s *service) runReloading(
	ctx context.Context, source *configSource, sighup <-chan struct{},
	work func(context.Context) error,
) error {
	lock := newLockKeeper(s.app)
	o := reload.Options{
		Initial:     s.Loaded,
		Load:        source.reload,
		Unchanged:   source.isUnchanged,
		Flags:       source.flagKeys(),
		LockPath:    pins.PathOf,
		SearchPaths: config.SearchPaths(config.Options{Path: source.path}),
		TrustDir:    trustStoreOf(source.state).dir,
		Target:      reloadTarget{s, lock},
		Certificate: &s.certificate,
		OnReload:    s.systemd.reloading,
		Log:         s.log,
	}
	if s.http != nil {
		o.Server = reloadServer{s}
	}
	reloader := reload.New(o)
	ctx, end := context.WithCancel(ctx)
	var records sync.WaitGroup
	records.Go(func() { lock.run(ctx) })
	admin := &adminService{service: s, started: time.Now(), reloader: reloader}
	records.Go(func() { admin.run(ctx) })
	records.Go(func() { s.systemd.run(ctx) })
	records.Go(func() {
		(&nameRecorder{
			backends: s.backends, log: s.log, source: s.Source,
			path: nameRecordPath(s.Config.StateDir, s.Source),
		}).run(ctx)
	})
	defer records.Wait()
	defer end()
	return reloader.Run(ctx, sighup, work)
}

// A reloadTarget applies a reload to a service.
type reloadTarget struct {
	*service
	lock *lockKeeper
}

// Tokens implements reload.Target.
func (t reloadTarget) Tokens(l *config.Loaded, c *config.Config) ([]config.Token, error) {
	return t.autoToken.tokens(l, c)
}

// A reloadServer applies a reload to the HTTP server.
type reloadServer struct{ *service }

// UpdateAccess implements reload.HTTPServer.
func (r reloadServer) UpdateAccess(c *config.Config, tokens []config.Token) {
	setTokenRates(&r.rates, tokens)
	r.http.UpdateAccess(r.accessOf(c, tokens))
}

// SetSecrets implements reload.Target.
func (t reloadTarget) SetSecrets(secrets []string) { t.setSecrets(secrets) }

// RestrictProfiles implements reload.Target.
func (t reloadTarget) RestrictProfiles(c *config.Config) { t.backends.RestrictProfiles(c.Profiles) }

// SetAudit implements reload.Target.
func (t reloadTarget) SetAudit(c *config.Config) { t.journal.configure(c.Audit) }

// SetLogLevel implements reload.Target.
func (t reloadTarget) SetLogLevel(c *config.Config) { t.level.Set(levelOf(c)) }

// ApplyBackends implements reload.Target.
func (t reloadTarget) ApplyBackends(
	ctx context.Context, c *config.Config, late func(names []string),
) error {
	setBackendRates(&t.rates, c)
	t.mask.SetTokenOwners(tokenOwners(c.Backends, t.backends.Status())...)
	return t.backends.Apply(ctx, backends.Change{
		Backends: c.Backends, Catalog: catalogOptions(c), CatalogWait: c.Catalog.Wait,
		Profiles:    c.Profiles,
		OnSlowStart: late,
	})
}

// NoteLockChange implements reload.Target.
func (t reloadTarget) NoteLockChange(source string) { t.lock.noteChange(source) }

// NotReady implements reload.Target.
func (t reloadTarget) NotReady(names map[string]bool) (notReady []string) {
	for _, s := range t.backends.Status() {
		switch s.State {
		case backends.Starting, backends.BackingOff, backends.BreakerOpen, backends.Misconfigured,
			backends.NeedsLogin:
			if names[s.Name] {
				notReady = append(notReady, s.Name+" ("+string(s.State)+")")
			}
		}
	}
	return notReady
}

// RetryFailed implements reload.Target.
func (t reloadTarget) RetryFailed() []string { return t.backends.RetryFailed() }
