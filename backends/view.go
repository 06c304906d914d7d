package backends

import "mcpgateway/catalog"

// publish makes a View of what the backends offer at this moment.
func (s *Set) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked()
}

func (s *Set) publishLocked() {
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
	s.view.Store(v)
	if was != nil {
		close(was)
	}
}

// maxRenamed bounds what is remembered of what was logged.
const maxRenamed = 100_000

// logNames says, once, what appears under another name than its own.
func (s *Set) logNames(v *catalog.Snapshot, prefix catalog.Prefix) {
	if len(s.renamed) > maxRenamed {
		clear(s.renamed)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		for _, e := range v.Entries(k) {
			if e.Exposed != e.Item.Own && (e.Exposed == "" || prefix != catalog.Always) {
				s.logName(k, e)
			}
		}
	}
}

func (s *Set) logName(k catalog.Kind, e catalog.Entry) {
	said := k.String() + "\x00" + e.Backend + "\x00" + e.Item.Own + "\x00" + e.Exposed
	if s.renamed[said] {
		return
	}
	s.renamed[said] = true
	if e.Exposed == "" {
		s.Log.Warn(k.String()+" not listed: an earlier backend has it", "backend", e.Backend, key(k), e.Item.Own)
	} else {
		s.Log.Info(k.String()+" appears under another name", "backend", e.Backend, key(k), e.Item.Own, "as", e.Exposed)
	}
}
