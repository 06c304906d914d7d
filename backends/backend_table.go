package backends

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
)

// A backendTable contains the backends of a Set at one moment, and the other settings that Apply
// changes. It is immutable, so that a reader sees either the state before a change or the state
// after it.
type backendTable struct {
	all          []*Backend // enabled backends, in configuration order
	names        []string   // in configuration order, including the names of disabled backends
	byName       map[string]*Backend
	catalog      catalog.Options
	catalogWait  time.Duration // see Options.CatalogWait
	orderChanged bool          // the order has changed: all names are reassigned

	pins map[string]config.Pin // by name, including the names of disabled backends
	// by name: the configuration of the backends that are enabled and not misconfigured
	configs map[string]config.Backend
	// by name: when Control.Stop has stopped the backend, which is in all when it is started again
	stopped map[string]time.Time

	// removed backends and instances that have not ended yet, oldest first
	draining      []*Backend
	misconfigured map[string]string // name → reason
	removedNames  map[string]bool   // names of removed backends
}

// maxRemovedNames bounds the removed names that are remembered.
const maxRemovedNames = 1000

// has reports whether b is in the table, or an instance of a backend in the table.
func (t *backendTable) has(b *Backend) bool {
	current := t.byName[b.cfg.Name]
	return current == b || current != nil && b.instances.owner != nil &&
		current.instances.get(b.instances.owner.Key()) == b
}

// withName returns the current backend with a name, its instances, and the draining backends; "" =
// with any name.
func (t *backendTable) withName(name string) iter.Seq[*Backend] {
	return func(yield func(*Backend) bool) {
		for b := range t.running() {
			if (name == "" || b.cfg.Name == name) && !yield(b) {
				return
			}
		}
		for _, b := range t.draining {
			if (name == "" || b.cfg.Name == name) && !yield(b) {
				return
			}
		}
	}
}

// running returns the backends in the table and their instances.
func (t *backendTable) running() iter.Seq[*Backend] {
	return func(yield func(*Backend) bool) {
		for _, b := range t.all {
			for one := range b.instances.andSelf() {
				if !yield(one) {
					return
				}
			}
		}
	}
}

// Errors of calls to a backend that is not in the table.
var (
	errRemoved  = notSent("it was removed from the configuration")
	errDisabled = notSent("it is disabled in the configuration")
)

// whyAbsent returns the error of calls to a backend that is not in the table.
func (t *backendTable) whyAbsent(name string) error {
	switch {
	case t.misconfigured[name] != "":
		return notSent("it is misconfigured: %s", t.misconfigured[name])
	case !t.stopped[name].IsZero():
		return notSent("it was stopped with gateway stop; gateway start %s starts it", name)
	case slices.Contains(t.names, name):
		return errDisabled
	case t.removedNames[name]:
		return errRemoved
	}
	return notSent("it is not configured")
}

// keeping returns a copy of the table with only the backends for which stays reports true. The
// names of the other backends are added to removedNames. The field names of the copy contains only
// names that are also in the argument names, and orderChanged is false.
func (t *backendTable) keeping(stays func(*Backend) bool, names []string) *backendTable {
	next := *t
	next.all, next.byName, next.orderChanged = nil, make(map[string]*Backend), false
	next.names = slices.DeleteFunc(slices.Clone(t.names),
		func(name string) bool { return !slices.Contains(names, name) })
	next.removedNames = maps.Clone(t.removedNames)
	if next.removedNames == nil {
		next.removedNames = make(map[string]bool)
	}
	for _, b := range t.all {
		if stays(b) {
			next.all = append(next.all, b)
			next.byName[b.cfg.Name] = b
		} else {
			next.addRemoved(b.cfg.Name)
		}
	}
	return &next
}

// withPredecessors returns a copy of the table in which each of the missing backends is replaced by
// its predecessor in the table now, if there is one.
func (t *backendTable) withPredecessors(missing []*Backend, now *backendTable) *backendTable {
	next := *t
	next.all, next.byName, next.names = nil, make(map[string]*Backend), slices.Clone(t.names)
	for _, b := range t.all {
		if slices.Contains(missing, b) {
			if old := t.predecessor(b, now); old != nil {
				next.names[slices.Index(next.names, b.cfg.Name)] = old.cfg.Name
				b = old
			}
		}
		next.all = append(next.all, b)
		next.byName[b.cfg.Name] = b
	}
	return &next
}

// predecessor returns the backend in the table now that b replaces, or b itself; nil = none. It is
// the backend of the same name, or else one that is renamed to b: it has the same program or URL,
// and its name is no longer in the configuration. If there are several renamed or several new
// backends with this program, the first renamed one becomes the first new one, and so on.
func (t *backendTable) predecessor(b *Backend, now *backendTable) *Backend {
	if old := now.byName[b.cfg.Name]; old != nil {
		return old
	}
	earlier := 0 // new backends with this program
	for _, other := range t.all[:slices.Index(t.all, b)] {
		if other.known.serverKey == b.known.serverKey && now.byName[other.cfg.Name] == nil {
			earlier++
		}
	}
	for _, old := range now.all {
		if old.known.serverKey == b.known.serverKey && !slices.Contains(t.names, old.cfg.Name) {
			if earlier == 0 {
				return old
			}
			earlier--
		}
	}
	return nil
}

// orderDiffers reports whether two names that are in both lists have a different order in the
// second.
func orderDiffers(before, after []string) bool {
	last := -1
	for _, name := range after {
		if i := slices.Index(before, name); i >= 0 {
			if i < last {
				return true
			}
			last = i
		}
	}
	return false
}

func (t *backendTable) addRemoved(name string) {
	if t.byName[name] == nil && len(t.removedNames) < maxRemovedNames {
		t.removedNames[name] = true
	}
}

// validate returns an error if two backends have the same name.
func (c Change) validate() error {
	seen := make(map[string]bool)
	for _, one := range c.Backends {
		if seen[one.Name] {
			return fmt.Errorf("backend %s: the name occurs twice", one.Name)
		}
		seen[one.Name] = true
	}
	return nil
}
