package main

import (
	"context"
	"sync"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/reload"
)

// runReloading calls work. Until work returns, it reloads the configuration and keeps the record of
// names up to date. server is nil if the gateway does not serve HTTP.
func (c *cli) runReloading(
	ctx context.Context, a *app, server *httpserver.Server, sighup <-chan struct{},
	work func(context.Context) error,
) error {
	o := reload.Options{
		Initial:     a.Loaded,
		Load:        c.reloadConfig,
		Unchanged:   c.configUnchanged,
		Flags:       c.flagKeys(),
		SearchPaths: config.SearchPaths(config.Options{Path: c.config}),
		TrustDir:    c.trustStore().dir,
		Target:      reloadTarget{a},
		Certificate: &a.certificate,
		Log:         a.log,
	}
	if server != nil {
		o.Server = server
	}
	ctx, end := context.WithCancel(ctx)
	var names sync.WaitGroup
	names.Go(func() { a.keepNameRecord(ctx) })
	defer names.Wait()
	defer end()
	return reload.New(o).Run(ctx, sighup, work)
}

// A reloadTarget applies a reload to an app.
type reloadTarget struct{ *app }

// Tokens implements reload.Target.
func (t reloadTarget) Tokens(l *config.Loaded, c *config.Config) ([]string, error) {
	return t.authTokens(l, c)
}

// SetSecrets implements reload.Target.
func (t reloadTarget) SetSecrets(secrets []string) { t.mask.SetSecrets(secrets...) }

// SetLogLevel implements reload.Target.
func (t reloadTarget) SetLogLevel(c *config.Config) { t.level.Set(levelOf(c)) }

// ApplyBackends implements reload.Target.
func (t reloadTarget) ApplyBackends(
	ctx context.Context, c *config.Config, late func(names []string),
) error {
	return t.backends.Apply(ctx, backends.Change{
		Backends: c.Backends, Catalog: catalogOptions(c), CatalogWait: c.Catalog.Wait,
		OnSlowStart: late,
	})
}

// NotReady implements reload.Target.
func (t reloadTarget) NotReady(names map[string]bool) (notReady []string) {
	for _, s := range t.backends.Status() {
		switch s.State {
		case backends.Starting, backends.BackingOff, backends.BreakerOpen, backends.Misconfigured:
			if names[s.Name] {
				notReady = append(notReady, s.Name+" ("+string(s.State)+")")
			}
		}
	}
	return notReady
}

// RetryFailed implements reload.Target.
func (t reloadTarget) RetryFailed() []string { return t.backends.RetryFailed() }
