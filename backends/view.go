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
		s.publishLocked(false)
	}
}

// publishLocked makes a View. Names stay with the backends that have them, unless anew is set:
// then they are given in the order of the configuration. So they are until lists go out.
func (s *Set) publishLocked(anew bool) {
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
		Snapshot:        s.last.Next(m.catalog, listings, anew || !s.out),
		Settled:         len(missing) == 0 || s.waited,
		Complete:        len(missing) == 0,
		MissingPrefixes: missing,
		Changed:         s.changed,
	}
	if v.Settled {
		s.logMoves(v.Moves())
		s.last, s.out = v.Snapshot, true
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

// maxMoves bounds the lines about names that belong to another backend.
const maxMoves = 20

// logMoves logs the names that belong to another backend than when lists went out last, in this run
// or in the one before.
func (s *Set) logMoves(moves []catalog.Move) {
	text := " belongs to another backend now: the name means something else"
	if !s.out {
		text = " belongs to another backend than in the last run: " +
			"what clients permit under the name applies to another server; if that is not wanted, change the order of the backends or set catalog.prefix to always"
	}
	all := catalog.Transfers(moves)
	for _, t := range all[:min(len(all), maxMoves)] {
		s.Log.Warn(t.Kind.String()+text, key(t.Kind), few(t.Names), "backend", t.To, "was", t.From)
	}
	if more := len(all) - maxMoves; more > 0 {
		s.Log.Warn("names of more backends belong to another backend", "records", more)
	}
}

// A renaming is what of a backend's appears under which name, "" = under none, and the other backend
// that is the reason.
type renaming struct {
	kind                         catalog.Kind
	backend, own, exposed, rival string
}

// maxRenamed bounds what is remembered of what was logged.
const maxRenamed = 100_000

// A cause is why entries of a backend appear under other names, or under none.
type cause struct {
	backend, rival string
	mimics, hidden bool
}

// logNames says, once, what appears under another name than its own.
func (s *Set) logNames(v *catalog.Snapshot, prefix catalog.Prefix) {
	if len(s.renamed) > maxRenamed {
		clear(s.renamed)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		var causes []cause // in the order in which they have something new
		fresh := make(map[cause][]catalog.Entry)
		for _, e := range v.Entries(k) {
			if e.Exposed == e.Item.Original || e.Exposed != "" && prefix == catalog.PrefixAlways || !s.isNewName(k, e) {
				continue
			}
			c := cause{e.Backend, e.ConflictBackend, e.PrefixConflict, e.Exposed == ""}
			if fresh[c] == nil {
				causes = append(causes, c)
			}
			fresh[c] = append(fresh[c], e)
		}
		for _, c := range causes {
			s.logRenamed(k, c, fresh[c])
		}
	}
}

func (s *Set) isNewName(k catalog.Kind, e catalog.Entry) bool {
	r := renaming{k, e.Backend, e.Item.Original, e.Exposed, e.ConflictBackend}
	if s.renamed[r] {
		return false
	}
	s.renamed[r] = true
	return true
}

// logRenamed says in one line what of one backend appears under other names, or under none, for one
// cause.
func (s *Set) logRenamed(k catalog.Kind, c cause, some []catalog.Entry) {
	var own, as []string
	for _, e := range some {
		own, as = append(own, e.Item.Original), append(as, e.Exposed)
	}
	args := []any{"backend", c.backend, key(k), few(own)}
	say, text := s.Log.Info, "name collision"
	if c.hidden {
		as = nil
	}
	switch {
	case c.mimics:
		say, text = s.Log.Warn, k.String()+" begins with the name of another backend"
	case c.rival == "":
		text = k.String() + " appears under another name"
	case c.hidden:
		say = s.Log.Warn
	}
	args = append(args, "as", few(as))
	if c.rival != "" {
		args = append(args, "owner", c.rival)
	}
	say(text, args...)
}

// few names some, and counts the rest.
func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
