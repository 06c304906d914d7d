package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// A DefinitionDigest identifies a Definition.
type DefinitionDigest [sha256.Size]byte

// A Definition is the definition of a tool, without its name. It is immutable.
type Definition struct {
	fields []definitionField // sorted by name; names are unique
	digest DefinitionDigest
}

// A definitionField is a member of a definition.
type definitionField struct {
	name  string
	value []byte // canonical; nil = only the sum is known
	sum   [sha256.Size]byte
}

const (
	// maxFields and maxFieldName bound the fields of a definition and their names, in bytes. The
	// other fields, and members that occur twice, are combined in one field, otherFields.
	maxFields    = 64
	maxFieldName = 128
	otherFields  = "(other fields)"
)

// New returns the definition of a tool, which is a JSON object as in a result of tools/list.
func New(tool []byte) *Definition {
	all, _ := members(tool)
	var kept, others []canonicalMember
	for i, m := range all {
		isTwice := i > 0 && all[i-1].name == m.name || i+1 < len(all) && all[i+1].name == m.name
		switch {
		case m.name == "name":
		case len(kept) == maxFields-1 || len(m.name) > maxFieldName || isTwice ||
			m.name == otherFields:
			others = append(others, m)
		default:
			kept = append(kept, m)
		}
	}
	if others != nil {
		kept = append(kept, canonicalMember{otherFields, appendObject(nil, others)})
	}
	fields := make([]definitionField, 0, len(kept))
	for _, m := range kept {
		fields = append(fields, definitionField{m.name, m.value, sha256.Sum256(m.value)})
	}
	return fromFields(fields)
}

// DigestOf returns the digest of New(tool).
func DigestOf(tool []byte) DefinitionDigest { return New(tool).digest }

// fromFields returns a definition with these fields, whose names are unique.
func fromFields(fields []definitionField) *Definition {
	slices.SortFunc(fields,
		func(a, b definitionField) int { return strings.Compare(a.name, b.name) })
	var text []byte
	for _, f := range fields {
		text = hex.AppendEncode(append(appendString(text, f.name), ':'), f.sum[:])
	}
	return &Definition{fields, sha256.Sum256(text)}
}

// Digest returns a digest that is the same for equal definitions, even if only the sums of their
// fields are known.
func (d *Definition) Digest() DefinitionDigest { return d.digest }

// ChangedFields returns the names of the fields that differ, and of those that only one of the
// definitions has.
func (d *Definition) ChangedFields(next *Definition) (names []string) {
	for _, p := range d.pairs(next) {
		if p.was == nil || p.is == nil || p.was.sum != p.is.sum {
			names = append(names, p.name)
		}
	}
	return names
}

// A fieldPair is a field of two definitions; nil = the definition has no such field.
type fieldPair struct {
	name    string
	was, is *definitionField
}

// pairs returns the fields of both definitions, by name.
func (d *Definition) pairs(next *Definition) (all []fieldPair) {
	i, k := 0, 0
	for i < len(d.fields) || k < len(next.fields) {
		order := 0
		switch {
		case i == len(d.fields):
			order = 1
		case k == len(next.fields):
			order = -1
		default:
			order = strings.Compare(d.fields[i].name, next.fields[k].name)
		}
		var p fieldPair
		if order <= 0 {
			p.name, p.was = d.fields[i].name, &d.fields[i]
			i++
		}
		if order >= 0 {
			p.name, p.is = next.fields[k].name, &next.fields[k]
			k++
		}
		all = append(all, p)
	}
	return all
}
