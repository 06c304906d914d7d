package catalog

// NameOwners are the approved backends of exposed tool names. A strict backend gets no name of
// another backend, and no other backend gets a name of a strict one. The other names are not
// restricted. NameOwners are immutable; nil = there are no restrictions.
type NameOwners struct {
	backends map[string]string // by exposed name
	folded   map[string]string // by foldKey of the names
	strict   map[string]bool   // by backend
	// reports whether the names of a backend are restricted; nil = those of all
	counts func(backend string) bool
}

// Of returns the owners without the names of the backends for which counts returns false.
func (o *NameOwners) Of(counts func(backend string) bool) *NameOwners {
	if o == nil {
		return nil
	}
	some := *o
	some.counts = counts
	return &some
}

// NewNameOwners returns the owners of the names in backends, a map from exposed names to backends.
// It returns nil if no backend is strict. The caller must not change the maps afterwards.
func NewNameOwners(backends map[string]string, strict map[string]bool) *NameOwners {
	if len(backends) == 0 || len(strict) == 0 {
		return nil
	}
	o := &NameOwners{backends: backends, folded: make(map[string]string, len(backends)),
		strict: strict}
	for name, backend := range backends {
		o.folded[Tools.foldKey(name)] = backend
	}
	return o
}

// Owner returns the approved backend of a name, or of a name that looks like it, if this backend
// prevents another one from having the name; "" if the other backend may have it.
func (o *NameOwners) Owner(name, backend string) (owner string) {
	if o == nil {
		return ""
	}
	owner = o.backends[name]
	if owner == "" {
		owner = o.folded[Tools.foldKey(name)]
	}
	if owner == backend || !o.strict[owner] && !o.strict[backend] ||
		owner != "" && o.counts != nil && !o.counts(owner) {
		return ""
	}
	return owner
}
