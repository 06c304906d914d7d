package backends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Control stops, starts and restarts the backends of a Set for a user. Of a backend with
// oauth.per: principal, this includes the connections of all principals.
//
// Like a reload, it changes the table of backends: a backend that is stopped is removed from the
// table and drained, and a backend that is started or restarted is a new Backend with the same
// configuration. All methods may be called concurrently, also with [Set.Apply].
type Control struct{ set *Set }

// NewControl returns the Control of a Set.
func NewControl(s *Set) Control { return Control{s} }

// maxControlDrain is the longest time for which a backend that is stopped or restarted has calls in
// flight. After it they end as calls that may have run.
const maxControlDrain = 30 * time.Second

var errControlDrain = fmt.Errorf("it was stopped or restarted, and the call did not end within %v",
	maxControlDrain)

// A NotRunnableError says why a backend cannot be started or stopped.
type NotRunnableError struct {
	Unknown bool // there is no backend of this name; else it is disabled or misconfigured
	text    string
}

func (e *NotRunnableError) Error() string { return e.text }

// Stop stops a backend until Start or Restart is called, or a reload changes the backend; see
// [Set.Apply]. Calls in flight end on their connections, within 30 seconds; after that they end as
// calls that may have run. From the call of Stop on, queued and new calls fail, and the catalog has
// no entries of the backend. Subscriptions end.
//
// Stop returns when nothing of the backend runs, or ctx is done; the end of ctx does not end the
// stop. To stop a stopped backend is no error. The error is a *[NotRunnableError] if there is no
// backend of this name that could run.
func (c Control) Stop(ctx context.Context, name string) error {
	err := c.change(ctx, name, func(t *backendTable) {
		b := t.byName[name]
		if b == nil {
			return
		}
		next := t.keeping(func(one *Backend) bool { return one != b }, t.names)
		next.stopped = maps.Clone(t.stopped)
		next.stopped[name] = time.Now()
		b.log.Info("backend stopped by the user")
		c.set.replaceTable(next)
		limitDrain(b)
	})
	if err != nil {
		return err
	}
	return c.awaitDrained(ctx, name)
}

// Start starts a backend that Stop has stopped, that has failed, or that waits for demand, and
// resets its failures. It does nothing to a backend that runs. It returns when the backend is ready
// and was listed, or its start has failed, or ctx is done; the end of ctx does not end the start.
// The error is that of the start, or a *[NotRunnableError].
//
// Before the call of [Set.Start], Start does not wait: the backend is started with the others.
func (c Control) Start(ctx context.Context, name string) error {
	var current *Backend
	var renewed []*Backend
	err := c.change(ctx, name, func(t *backendTable) {
		if current = t.byName[name]; current == nil {
			renewed = c.renew(t, name)
		}
	})
	switch {
	case err != nil:
		return err
	case current != nil:
		return startNow(ctx, current)
	}
	return c.awaitRenewed(ctx, name, renewed)
}

// Restart stops a backend and starts it again; a backend that was stopped is only started.
// Failures of the backend are forgotten. Calls in flight end on their connections, as in
// [Control.Stop]; queued and new calls wait for the new connections. A process starts when the
// former processes of the backend have ended. The catalog keeps the lists of the backend until they
// are read again, and subscriptions are restored.
//
// Restart returns when nothing of the former backend runs and the new one is ready and was listed,
// or its start has failed, or ctx is done; the end of ctx does not end the restart. The error is as
// in [Control.Start].
func (c Control) Restart(ctx context.Context, name string) error {
	var renewed []*Backend
	err := c.change(ctx, name, func(t *backendTable) {
		renewed = c.renew(t, name)
	})
	if err != nil {
		return err
	}
	return c.awaitRenewed(ctx, name, renewed)
}

// change calls do with the current table while no other change of the table is in progress. It
// returns an error if no backend of this name could run, or ctx is done first.
func (c Control) change(ctx context.Context, name string, do func(t *backendTable)) error {
	s := c.set
	select {
	case s.applying <- struct{}{}:
		defer func() { <-s.applying }()
	case <-ctx.Done():
		return fmt.Errorf("another change of the backends is in progress: %w", context.Cause(ctx))
	}
	t := s.current()
	if err := t.whyNotRunnable(name); err != nil {
		return err
	}
	do(t)
	return nil
}

// maxNamesInError bounds the names in the error about an unknown backend.
const maxNamesInError = 20

// whyNotRunnable returns an error if no backend of this name could run.
func (t *backendTable) whyNotRunnable(name string) error {
	_, enabled := t.configs[name]
	switch {
	case enabled:
		return nil
	case t.misconfigured[name] != "":
		return &NotRunnableError{text: fmt.Sprintf("backend %s is misconfigured: %s; correct it and "+
			"reload the configuration", name, t.misconfigured[name])}
	case slices.Contains(t.names, name):
		return &NotRunnableError{text: fmt.Sprintf("backend %s is disabled in the configuration: "+
			"remove enabled: false and reload the configuration", name)}
	case len(t.names) == 0:
		return &NotRunnableError{Unknown: true,
			text: fmt.Sprintf("no backend is named %q: there are no backends", name)}
	}
	names := strings.Join(t.names[:min(len(t.names), maxNamesInError)], ", ")
	if len(t.names) > maxNamesInError {
		names += ", …"
	}
	return &NotRunnableError{Unknown: true,
		text: fmt.Sprintf("no backend is named %q; the backends are: %s", name, names)}
}

// renew replaces a backend and its instances by new ones with the same configuration. A backend
// that was stopped is only added. renew returns the new ones that it has started.
func (c Control) renew(t *backendTable, name string) (started []*Backend) {
	s := c.set
	old, b := t.byName[name], newBackend(s, t.configs[name])
	if old != nil {
		b.known.copyFrom(old.known)
	} else {
		b.known.load(s.IgnoreCache)
	}
	b.logDeviations()
	b.instances.keepUse(old)
	if b.isProcess() {
		for one := range t.withName(name) {
			b.lifetime.predecessors = append(b.lifetime.predecessors, one.lifetime.ended)
		}
	}
	next, all := t.withRenewed(b), []*Backend{b}
	s.startup.mu.Lock()
	if old != nil { // no further instance of old is opened once the table is replaced
		all = append(all, b.instances.renew(old)...)
	}
	launched := !s.startup.at.IsZero()
	s.publisher.replaceTable(next)
	s.startup.mu.Unlock()
	s.changes.note()
	if launched {
		text := "backend started by the user"
		if old != nil {
			text = "backend restarted by the user"
		}
		b.log.Info(text)
		for _, one := range all {
			if !one.instances.isUnused() {
				one.shared.wake() // also if it is lazy
				started = append(started, one)
			}
			one.start()
		}
	}
	s.drainRemoved(t, next)
	if old != nil {
		limitDrain(old)
	}
	s.limitDraining()
	return started
}

// awaitRenewed waits until nothing of the former backend runs, and the new ones are settled.
func (c Control) awaitRenewed(ctx context.Context, name string, renewed []*Backend) error {
	err := c.awaitDrained(ctx, name)
	for _, one := range renewed {
		err = cmp.Or(err, awaitListed(ctx, one))
	}
	return err
}

// withRenewed returns a copy of the table in which b replaces the backend of the same name, which
// may be stopped.
func (t *backendTable) withRenewed(b *Backend) *backendTable {
	next := *t
	next.all, next.byName, next.orderChanged = nil, maps.Clone(t.byName), false
	next.stopped = maps.Clone(t.stopped)
	delete(next.stopped, b.cfg.Name)
	next.byName[b.cfg.Name] = b
	for _, name := range t.names {
		if one := next.byName[name]; one != nil {
			next.all = append(next.all, one)
		}
	}
	return &next
}

// limitDrain lets the calls in flight of a removed backend and its instances end within
// maxControlDrain.
func limitDrain(b *Backend) {
	for one := range b.instances.andSelf() {
		one.lifetime.killAfter(maxControlDrain, errControlDrain)
	}
}

// awaitDrained waits until nothing runs of the removed backends of this name.
func (c Control) awaitDrained(ctx context.Context, name string) error {
	for _, b := range c.set.current().draining {
		if b.cfg.Name != name {
			continue
		}
		if err := b.lifetime.awaitEnd(ctx); err != nil {
			return fmt.Errorf("backend %s: its calls have not ended yet: %w", name, err)
		}
	}
	return nil
}

var errReplaced = errors.New("a reload, a restart or a stop has replaced it before it was ready")

// awaitListed waits until the backend is settled. It returns an error if the backend is not up
// then, or ctx is done first.
func awaitListed(ctx context.Context, b *Backend) error {
	var err error
	select {
	case <-b.lists.settled:
		if err = b.shared.whyDown(); err != nil { // a backend that is removed is settled too
			err = cmp.Or(whyRemoved(b), err)
		}
	case <-b.lifetime.serving.Done():
		err = whyRemoved(b)
	case <-ctx.Done():
		err = errNotReady(ctx)
	}
	return withName(b, err)
}

// whyRemoved returns an error if the backend was removed from the table, or the gateway is ending.
func whyRemoved(b *Backend) error {
	switch {
	case b.set.workers.alive.Err() != nil:
		return errStopped
	case b.lifetime.serving.Err() != nil:
		return errReplaced
	}
	return nil
}

func errNotReady(ctx context.Context) error {
	return fmt.Errorf("it is not ready yet: %w", context.Cause(ctx))
}

// withName returns err with the name of the backend; nil remains nil.
func withName(b *Backend, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("backend %s: %w", b.cfg.Name, err)
}

// startNow starts the backend and its instances if they wait for demand or have failed, and waits
// until they are ready or have failed.
func startNow(ctx context.Context, b *Backend) (err error) {
	if !b.set.startup.launched() {
		return nil
	}
	started := make(map[*Backend]time.Time) // time of the last error
	for one := range b.instances.andSelf() {
		if !one.instances.isUnused() {
			started[one] = one.shared.history().LastErrorAt
			one.perSession.resetBreaker()
			one.shared.starts.retryWithin(0)
			one.shared.wake()
		}
	}
	for one, lastError := range started {
		err = cmp.Or(err, awaitUp(ctx, one, lastError))
	}
	return err
}

// awaitUp waits until the shared connection is up and was listed. It returns an error if a failure
// follows the one at lastError, or ctx is done first.
func awaitUp(ctx context.Context, b *Backend, lastError time.Time) error {
	for {
		changed := b.set.changes.changed()
		h, up := b.shared.history(), b.shared.current() != nil
		switch {
		case up:
			return awaitListed(ctx, b)
		case h.LastErrorAt.After(lastError):
			return withName(b, h.LastError)
		}
		select {
		case <-changed:
		case <-b.lifetime.serving.Done():
			return withName(b, whyRemoved(b))
		case <-ctx.Done():
			return withName(b, errNotReady(ctx))
		}
	}
}
