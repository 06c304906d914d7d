package backends

import (
	"fmt"
	"strings"

	"mcpgateway/catalog"
)

// publish makes a View of the current listings, unless another goroutine has made one since the
// method publish was called. If two hundred backends start together, each has changes, and one
// merge serves many of them.
func (s *Set) publish() {
	changes := s.changes.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published < changes {
		s.publishLocked(false)
	}
}

// publishLocked makes a View. Names stay with the backends that have them. If reassign is set or no
// lists could have been sent yet, names are assigned in configuration order.
func (s *Set) publishLocked(reassign bool) {
	s.published = s.changes.Load() // before reading the listings
	t := s.current()
	var missing []string
	listings := make([]catalog.Listing, 0, len(t.all))
	for _, b := range t.all {
		l, settled := b.lists.current()
		listings = append(listings, l)
		if !settled {
			missing = append(missing, b.cfg.Name+t.catalog.Separator)
		}
	}
	previous := s.viewChanged
	s.viewChanged = make(chan struct{})
	v := &catalog.View{
		Snapshot:        s.lastSnapshot.Next(t.catalog, listings, reassign || !s.listsSent),
		Settled:         len(missing) == 0 || s.waitOver,
		Complete:        len(missing) == 0,
		MissingPrefixes: missing,
		Changed:         s.viewChanged,
	}
	if v.Settled {
		s.logMoves(v.Moves())
		s.lastSnapshot, s.listsSent = v.Snapshot, true
	}
	s.logNames(v.Snapshot, t.catalog.Prefix)
	if cut := v.InstructionsCut; v.Complete && cut != s.loggedCut {
		s.loggedCut = cut
		if cut > 0 {
			s.Log.Info("instructions too long; rest left out; set `instructions` to replace them",
				"lost", cut)
		}
	}
	s.view.Store(v)
	if previous != nil {
		close(previous)
	}
}

// maxLoggedMoves bounds the log records about names that have moved to another backend. Each new
// view has its own count.
const maxLoggedMoves = 20

// logMoves logs the names that belong to another backend than in the preceding lists, of this run
// or the preceding run.
func (s *Set) logMoves(moves []catalog.Move) {
	text := "name moved to another backend"
	if !s.listsSent {
		text = "name moved to another backend since the last run"
	}
	all := catalog.Transfers(moves)
	for _, t := range all[:min(len(all), maxLoggedMoves)] {
		s.Log.Warn(text, logKey(t.Kind), firstNames(t.Names), "backend", t.To, "was", t.From)
	}
	if more := len(all) - maxLoggedMoves; more > 0 {
		s.Log.Warn("further names moved to another backend", "records", more)
	}
}

// A loggedName is the exposed name of a backend's entry, "" = none, and the other backend that is
// the reason for this name.
type loggedName struct {
	kind                                 catalog.Kind
	backend, original, exposed, conflict string
}

// maxLoggedNames bounds Set.loggedNames.
const maxLoggedNames = 100_000

// A renameCause is the cause for which entries of a backend are exposed under other names, or
// hidden.
type renameCause struct {
	backend, conflict      string
	prefixConflict, hidden bool
}

// logNames logs the entries that are hidden or, unless all names have a prefix, exposed under a
// name other than their original name. It logs each entry once for each exposed name and
// conflicting backend.
func (s *Set) logNames(v *catalog.Snapshot, prefix catalog.Prefix) {
	if len(s.loggedNames) > maxLoggedNames {
		clear(s.loggedNames)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		var causes []renameCause // causes in the order of their first new name
		fresh := make(map[renameCause][]catalog.Entry)
		for _, e := range v.Entries(k) {
			if e.Exposed == e.Item.Original || e.Exposed != "" && prefix == catalog.PrefixAlways ||
				!s.isNewName(k, e) {
				continue
			}
			c := renameCause{e.Backend, e.ConflictBackend, e.PrefixConflict, e.Exposed == ""}
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
	r := loggedName{k, e.Backend, e.Item.Original, e.Exposed, e.ConflictBackend}
	if s.loggedNames[r] {
		return false
	}
	s.loggedNames[r] = true
	return true
}

// logRenamed logs in one record the entries of one backend that are renamed or hidden for one
// cause.
func (s *Set) logRenamed(k catalog.Kind, c renameCause, some []catalog.Entry) {
	var own, as []string
	for _, e := range some {
		own, as = append(own, e.Item.Original), append(as, e.Exposed)
	}
	args := []any{"backend", c.backend, logKey(k), firstNames(own)}
	logAt, text := s.Log.Info, "name collision"
	if c.hidden {
		as = nil
	}
	switch {
	case c.prefixConflict:
		logAt, text = s.Log.Warn, "name begins with the name of another backend"
	case c.conflict == "":
		text = "entry exposed under another name"
	case c.hidden:
		logAt, text = s.Log.Warn, "name collision; entry not listed"
	}
	args = append(args, "as", firstNames(as))
	if c.conflict != "" {
		args = append(args, "owner", c.conflict)
	}
	logAt(text, args...)
}

// firstNames joins the first names, and counts the rest.
func firstNames(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
