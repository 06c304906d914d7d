package backends

import (
	"fmt"
	"log/slog"
	"strings"

	"mcpgateway/catalog"
)

// A loggedName is the exposed name of a backend's entry, "" = none, and the other backend that is
// the reason for this name.
type loggedName struct {
	kind                                 catalog.Kind
	backend, original, exposed, conflict string
}

// maxLoggedNames bounds nameLog.logged.
const maxLoggedNames = 100_000

// A nameLog logs once each new name under which an entry is exposed, and how much of the
// instructions is cut.
type nameLog struct {
	log    *slog.Logger
	logged map[loggedName]bool // new names that were logged
	cut    int                 // number of characters cut from the instructions, as last logged
}

// logCut logs the number of characters that are cut from the instructions, if it has changed.
func (nl *nameLog) logCut(cut int) {
	if cut > 0 && cut != nl.cut {
		nl.log.Info("instructions too long; rest left out; set `instructions` to replace them",
			"lost", cut)
	}
	nl.cut = cut
}

// A renameCause is the cause for which entries of a backend are exposed under other names, or
// hidden.
type renameCause struct {
	backend, conflict      string
	prefixConflict, hidden bool
}

// logNames logs the entries that are hidden or, unless all names have a prefix, exposed under a
// name other than their original name. It logs each entry once for each exposed name and
// conflicting backend.
func (nl *nameLog) logNames(v *catalog.Snapshot, prefix catalog.Prefix) {
	if len(nl.logged) > maxLoggedNames {
		clear(nl.logged)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		var causes []renameCause // causes in the order of their first new name
		fresh := make(map[renameCause][]catalog.Entry)
		for _, e := range v.Entries(k) {
			if e.Exposed == e.Item.Original || e.Item.Builtin ||
				e.Exposed != "" && prefix == catalog.PrefixAlways || !nl.isNew(k, e) {
				continue
			}
			c := renameCause{e.Backend, e.ConflictBackend, e.PrefixConflict, e.Exposed == ""}
			if fresh[c] == nil {
				causes = append(causes, c)
			}
			fresh[c] = append(fresh[c], e)
		}
		for _, c := range causes {
			nl.logRenamed(k, c, fresh[c])
		}
	}
}

func (nl *nameLog) isNew(k catalog.Kind, e catalog.Entry) bool {
	r := loggedName{k, e.Backend, e.Item.Original, e.Exposed, e.ConflictBackend}
	if nl.logged[r] {
		return false
	}
	nl.logged[r] = true
	return true
}

// logRenamed logs in one record the entries of one backend that are renamed or hidden for one
// cause.
func (nl *nameLog) logRenamed(k catalog.Kind, c renameCause, some []catalog.Entry) {
	var own, as []string
	for _, e := range some {
		own, as = append(own, e.Item.Original), append(as, e.Exposed)
	}
	args := []any{"backend", c.backend, logKey(k), firstNames(own)}
	logAt, text := nl.log.Info, "name collision"
	if c.hidden {
		as = nil
	}
	switch {
	case c.prefixConflict:
		logAt, text = nl.log.Warn, "name begins with the name of another backend"
	case c.conflict == "":
		text = "entry exposed under another name"
	case c.hidden:
		logAt, text = nl.log.Warn, "name collision; entry not listed"
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
