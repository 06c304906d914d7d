package backends

import (
	"fmt"
	"strings"

	"mcpgateway/catalog"
)

// publish makes a View of what the backends offer at this moment, unless one was made since it was
// called: of two hundred that start together each has news, and one merge is enough for many.
func (s *Set) publish() {
	news := s.news.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published < news {
		s.publishLocked()
	}
}

func (s *Set) publishLocked() {
	s.published = s.news.Load() // before it is looked what they offer
	m := s.now()
	var missing []string
	listings := make([]catalog.Listing, 0, len(m.all))
	for _, b := range m.all {
		l, answered := b.offer()
		listings = append(listings, l)
		if !answered {
			missing = append(missing, b.cfg.Name+m.catalog.Separator)
		}
	}
	was := s.changed
	s.changed = make(chan struct{})
	v := &catalog.View{
		Snapshot: catalog.Merge(m.catalog, listings),
		Settled:  len(missing) == 0 || s.waited,
		Complete: len(missing) == 0,
		Missing:  missing,
		Changed:  s.changed,
	}
	s.logNames(v.Snapshot, m.catalog.Prefix)
	if cut := v.InstructionsCut; v.Complete && cut != s.cut {
		s.cut = cut
		if cut > 0 {
			s.Log.Info(fmt.Sprintf("instructions of the backends are too long; left out %d characters; `instructions` replaces them", cut))
		}
	}
	s.view.Store(v)
	if was != nil {
		close(was)
	}
}

// A renaming is what of a backend's appears under which name, "" = under none.
type renaming struct {
	kind                  catalog.Kind
	backend, own, exposed string
}

// maxRenamed bounds what is remembered of what was logged.
const maxRenamed = 100_000

// logNames says, once, what appears under another name than its own.
func (s *Set) logNames(v *catalog.Snapshot, prefix catalog.Prefix) {
	if len(s.renamed) > maxRenamed {
		clear(s.renamed)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		var backends []string // in the order in which they have something new
		fresh := make(map[string][]catalog.Entry)
		for _, e := range v.Entries(k) {
			if e.Exposed == e.Item.Own || e.Exposed != "" && prefix == catalog.Always || !s.isNewName(k, e) {
				continue
			}
			if fresh[e.Backend] == nil {
				backends = append(backends, e.Backend)
			}
			fresh[e.Backend] = append(fresh[e.Backend], e)
		}
		for _, b := range backends {
			s.logRenamed(k, b, fresh[b])
		}
	}
}

func (s *Set) isNewName(k catalog.Kind, e catalog.Entry) bool {
	r := renaming{k, e.Backend, e.Item.Own, e.Exposed}
	if s.renamed[r] {
		return false
	}
	s.renamed[r] = true
	return true
}

// logRenamed says in one line what of one backend appears under other names, and in another
// what is not listed.
func (s *Set) logRenamed(k catalog.Kind, backend string, some []catalog.Entry) {
	var own, as, hidden []string
	for _, e := range some {
		if e.Exposed == "" {
			hidden = append(hidden, e.Item.Own)
			continue
		}
		own, as = append(own, e.Item.Own), append(as, e.Exposed)
	}
	if len(hidden) > 0 {
		s.Log.Warn(k.String()+" not listed: an earlier backend has it", "backend", backend, key(k), few(hidden))
	}
	if len(own) > 0 {
		s.Log.Info(k.String()+" appears under another name", "backend", backend, key(k), few(own), "as", few(as))
	}
}

// few names some, and counts the rest.
func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
