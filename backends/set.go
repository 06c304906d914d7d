// Package backends runs the MCP servers behind the gateway: it starts them,
// shakes hands, reads what they offer, and starts them again when they end.
//
//	Set.Run ─ Backend.run (one goroutine each; restart.go)
//	            └ converse: dial → greet → list → until it ends
//	Set.Send ─ Backend.send ─ peer.Offer, or a place among those that wait
//
// A [Set] is all of them, in the order of the configuration. It refuses to let one
// backend cost another anything: none waits for any other, and none that fails,
// hangs or talks nonsense is missed by more than its own tools.
package backends

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/config"
	"mcpgateway/peer"
	"mcpgateway/transport"
	"mcpgateway/wire"
)

// Options of a Set.
type Options struct {
	Backends []config.Backend // in their order; those that are not enabled are left out
	Catalog  catalog.Options
	Wait     time.Duration       // for backends that are starting, before a first list is given without them
	Limit    int                 // bytes of one message
	State    string              // directory of the last known catalogs, "" = none are kept
	Info     mcp.Implementation  // who we say we are
	Mask     func(string) string // takes secrets out of what backends write; nil = there are none
	Once     bool                // a backend that ends is not started again
	// Dial opens the Conn to a backend; nil = as its configuration says. It is
	// where tests put a backend that lives in memory.
	Dial func(config.Backend) (transport.Conn, error)
	Log  *slog.Logger
}

// A Set is the backends of a gateway. Create it with New.
type Set struct {
	Options
	all    []*Backend
	byName map[string]*Backend

	view     atomic.Pointer[catalog.View]
	recalled sync.Once
	once     sync.Once
	started  chan struct{} // closed by Start

	mu      sync.Mutex
	waited  bool            // Options.Wait is over
	changed chan struct{}   // of the view at hand
	renamed map[string]bool // new names that were logged
}

// New returns a Set. It starts nothing.
func New(o Options) *Set {
	if o.Mask == nil {
		o.Mask = func(text string) string { return text }
	}
	s := &Set{
		Options: o,
		byName:  make(map[string]*Backend),
		started: make(chan struct{}),
		renamed: make(map[string]bool),
	}
	for _, c := range o.Backends {
		if c.Enabled {
			b := newBackend(s, c)
			s.all = append(s.all, b)
			s.byName[c.Name] = b
		}
	}
	s.publish()
	return s
}

// Run runs the backends from the moment that Start is called until ctx is done,
// and returns when nothing of them is left.
func (s *Set) Run(ctx context.Context) error {
	s.recall()
	if !s.awaitStart(ctx) {
		for _, b := range s.all {
			b.down(Stopped, errStopped)
		}
		return ctx.Err()
	}
	wait := time.AfterFunc(s.Wait, func() {
		s.mu.Lock()
		s.waited = true
		s.mu.Unlock()
		for _, b := range s.all {
			if _, answered := b.offer(); !answered {
				b.log.Warn("backend is not ready yet; lists go out without it", "dur", s.Wait)
			}
		}
		s.publish()
	})
	defer wait.Stop()
	var running sync.WaitGroup
	for _, b := range s.all {
		running.Go(func() { b.run(ctx) })
	}
	running.Wait()
	return ctx.Err()
}

// headStart is how long the backends are held back when all their catalogs are
// known: a client asks for its list right after the handshake, and gets it sooner
// if twenty processes are not being started at that moment.
const headStart = 30 * time.Millisecond

// awaitStart waits for Start; it reports false if ctx is done first.
func (s *Set) awaitStart(ctx context.Context) bool {
	select {
	case <-s.started:
	case <-ctx.Done():
		return false
	}
	if !s.View().Complete {
		return true
	}
	select {
	case <-time.After(headStart):
		return true
	case <-ctx.Done():
		return false
	}
}

// Start lets Run begin, the first time it is called. When it returns, the
// catalogs that are known from earlier times are in the View; no backend has
// been waited for.
func (s *Set) Start() {
	s.recall()
	s.once.Do(func() { close(s.started) })
}

// recall reads the catalogs that are known from earlier times, once. Run does so
// before there is a client, so that the first one need not wait for it.
func (s *Set) recall() {
	s.recalled.Do(func() {
		for _, b := range s.all {
			b.recall()
		}
		s.publish()
	})
}

// View returns what is known of the catalog now.
func (s *Set) View() *catalog.View { return s.view.Load() }

// Send sends a request to a backend, or ends it at once if it cannot be sent. A
// backend that is starting gets it when it has started; if it fails to, the call
// ends with the reason.
func (s *Set) Send(backend string, m wire.Message, c *peer.Pending) {
	if b, ok := s.byName[backend]; ok {
		b.send(m, c)
		return
	}
	c.To.Done(wire.Message{}, notSent("is not configured"))
}

// Excuse returns the backend whose tool a name that nobody has would be by its
// prefix, and why that backend has never listed any; err is nil if there is no
// such backend.
func (s *Set) Excuse(name string) (backend string, err error) {
	for _, b := range s.all {
		if strings.HasPrefix(name, b.cfg.Name+s.Catalog.Separator) {
			if err := b.excuse(); err != nil {
				return b.cfg.Name, err
			}
		}
	}
	return "", nil
}

// Cancel takes back what was sent to a backend, or waits to be.
func (s *Set) Cancel(backend string, c *peer.Pending, params []byte) {
	if b, ok := s.byName[backend]; ok {
		b.cancel(c, params)
	}
}

// Status tells how each backend is, in their order.
func (s *Set) Status() []Status {
	all := make([]Status, 0, len(s.all))
	for _, b := range s.all {
		all = append(all, b.Status())
	}
	return all
}

// publish makes a View of what the backends offer at this moment.
func (s *Set) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	listings := make([]catalog.Listing, 0, len(s.all))
	for _, b := range s.all {
		l, answered := b.offer()
		listings = append(listings, l)
		if !answered {
			missing = append(missing, b.cfg.Name+s.Catalog.Separator)
		}
	}
	was := s.changed
	s.changed = make(chan struct{})
	v := &catalog.View{
		Snapshot: catalog.Merge(s.Catalog, listings),
		Settled:  len(missing) == 0 || s.waited,
		Complete: len(missing) == 0,
		Missing:  missing,
		Changed:  s.changed,
	}
	s.logNames(v.Snapshot)
	s.view.Store(v)
	if was != nil {
		close(was)
	}
}

// maxRenamed bounds what is remembered of what was logged.
const maxRenamed = 100_000

// logNames says, once, which tools appear under another name than their own.
func (s *Set) logNames(v *catalog.Snapshot) {
	if len(s.renamed) > maxRenamed {
		clear(s.renamed)
	}
	for _, e := range v.Entries() {
		if e.Exposed == e.Tool.Own || s.Catalog.Prefix == catalog.Always && e.Exposed != "" {
			continue
		}
		key := e.Backend + "\x00" + e.Tool.Own + "\x00" + e.Exposed
		if s.renamed[key] {
			continue
		}
		s.renamed[key] = true
		if e.Exposed == "" {
			s.Log.Warn("tool not listed: another backend has its name", "backend", e.Backend, "tool", e.Tool.Own)
		} else {
			s.Log.Info("tool appears under another name", "backend", e.Backend, "tool", e.Tool.Own, "as", e.Exposed)
		}
	}
}
