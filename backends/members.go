package backends

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"mcpgateway/catalog"
)

// members are the backends of a Set as of one moment, and what else Apply changes. They
// are immutable, so that whoever looks sees what was before a change or what is after it.
type members struct {
	all     []*Backend // in their order
	names   []string   // likewise, and of those that are not enabled
	byName  map[string]*Backend
	catalog catalog.Options
	wait    time.Duration // see Options.Wait
	moved   bool          // the order of the backends is another than before: names are given anew

	retired []*Backend        // those that are members no more and have calls in flight, the oldest first
	faults  map[string]string // name → why a backend is misconfigured, and no member
	former  map[string]bool   // names of which there was a member once, and is none now
}

// maxFormer bounds the names of which it is remembered that they were configured once.
const maxFormer = 1000

func (s *Set) now() *members { return s.members.Load() }

// has reports whether a backend is a member.
func (m *members) has(b *Backend) bool { return m.byName[b.cfg.Name] == b }

// everyone is who goes by a name, "" = by any: a member, and those that had the name before
// and still have calls in flight.
func (m *members) everyone(name string) iter.Seq[*Backend] {
	return func(yield func(*Backend) bool) {
		for _, some := range [][]*Backend{m.all, m.retired} {
			for _, b := range some {
				if (name == "" || b.cfg.Name == name) && !yield(b) {
					return
				}
			}
		}
	}
}

// errRemoved and errDisabled are why a call ends for whose backend there is none any more.
var (
	errRemoved  = notSent("it was removed from the configuration")
	errDisabled = notSent("it is disabled in the configuration")
)

// absent returns why nothing can be sent to a backend that is no member.
func (m *members) absent(name string) error {
	switch {
	case m.faults[name] != "":
		return notSent("it is misconfigured: %s", m.faults[name])
	case slices.Contains(m.names, name):
		return errDisabled
	case m.former[name]:
		return errRemoved
	}
	return notSent("is not configured")
}

// plan returns the members after a change, but for retired, and those among them that are
// new. A backend of which only the filters differ stays a member.
func (s *Set) plan(m *members, c Change) (next *members, newcomers []*Backend) {
	next = &members{byName: make(map[string]*Backend), faults: make(map[string]string), catalog: c.Catalog, wait: c.CatalogWait}
	for _, one := range c.Backends {
		next.names = append(next.names, one.Name)
		if !one.Enabled {
			continue
		}
		if one.Misconfigured != "" {
			if m.faults[one.Name] != one.Misconfigured {
				s.Log.Warn("backend is misconfigured; it is not started", "backend", one.Name, "err", one.Misconfigured)
			}
			next.faults[one.Name] = one.Misconfigured
			continue
		}
		b := m.byName[one.Name]
		if b == nil || !reflect.DeepEqual(b.cfg, one.Unfiltered()) {
			b = newBackend(s, one)
			newcomers = append(newcomers, b)
		}
		next.all = append(next.all, b)
		next.byName[one.Name] = b
	}
	next.former = make(map[string]bool)
	for name := range m.byName {
		next.remember(name)
	}
	for name := range m.former {
		next.remember(name)
	}
	next.catalog.ReservedBackends = slices.Clone(next.names)
	for name := range next.former {
		next.catalog.ReservedBackends = append(next.catalog.ReservedBackends, name)
	}
	slices.Sort(next.catalog.ReservedBackends)
	next.moved = moved(m.names, next.names)
	return next, newcomers
}

// only returns the members that stay, in their order, of a configuration that has the names; those
// of the others are remembered.
func (m *members) only(stays func(*Backend) bool, names []string) *members {
	next := *m
	next.all, next.byName, next.moved = nil, make(map[string]*Backend), false
	next.names = slices.DeleteFunc(slices.Clone(m.names), func(name string) bool { return !slices.Contains(names, name) })
	next.former = maps.Clone(m.former)
	if next.former == nil {
		next.former = make(map[string]bool)
	}
	for _, b := range m.all {
		if stays(b) {
			next.all = append(next.all, b)
			next.byName[b.cfg.Name] = b
		} else {
			next.remember(b.cfg.Name)
		}
	}
	return &next
}

// until returns the members while some of them are not ready yet: in their place are those that have
// their names now, if there are any.
func (m *members) until(missing []*Backend, now *members) *members {
	next := *m
	next.all, next.byName = nil, make(map[string]*Backend)
	for _, b := range m.all {
		if old := now.byName[b.cfg.Name]; old != nil && slices.Contains(missing, b) {
			b = old
		}
		next.all = append(next.all, b)
		next.byName[b.cfg.Name] = b
	}
	return &next
}

// moved reports whether two backends that are in both lists have another order in the second.
func moved(was, is []string) bool {
	last := -1
	for _, name := range is {
		if i := slices.Index(was, name); i >= 0 {
			if i < last {
				return true
			}
			last = i
		}
	}
	return false
}

func (m *members) remember(name string) {
	if m.byName[name] == nil && len(m.former) < maxFormer {
		m.former[name] = true
	}
}

// check reports what of a change cannot be.
func (c Change) check() error {
	seen := make(map[string]bool)
	for _, one := range c.Backends {
		if seen[one.Name] {
			return fmt.Errorf("backend %s: it is there twice", one.Name)
		}
		seen[one.Name] = true
	}
	return nil
}
