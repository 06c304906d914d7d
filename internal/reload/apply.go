package reload

import (
	"context"
	"slices"

	"mcpgateway/internal/config"
)

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
	r.Target.SetAudit(c)
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
