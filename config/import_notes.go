package config

import (
	"cmp"
	"slices"
	"strings"
)

// origin notes where s stands, too.
func (im *importer) origin(s server) {
	if o := (origin{s.client, im.shown(s.path)}); !slices.Contains(im.from, o) {
		im.from = append(im.from, o)
	}
}

// finish hides what is secret, and ends the notes with what is left to do.
func (im *importer) finish() {
	im.hideSecrets()
	if names := im.toSet(); len(names) > 0 {
		im.note("set before you start the gateway: %s", strings.Join(names, ", "))
	}
	if places := im.stillThere(); len(places) > 0 {
		im.note("these servers are now in both places; once the gateway serves them, remove them from %s", strings.Join(places, ", "))
	}
}

// toSet lists the variables without which what was imported does not load, less
// those that the user has set already.
func (im *importer) toSet() []string {
	var names []string
	for i := range im.out.servers {
		for _, text := range im.out.servers[i].all() {
			for _, name := range needs(text) {
				_, set := im.opts.Env(name)
				if (!set || im.vars[name] != unknown) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// stillThere says where to remove what was imported, and how.
func (im *importer) stillThere() []string {
	var places []string
	for _, o := range im.from {
		place := o.client.title + " (" + cmp.Or(o.client.drop, o.file) + ")"
		if o.client.ends == nil {
			place = o.file
		}
		if !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	return places
}
