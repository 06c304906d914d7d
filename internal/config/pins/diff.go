package pins

import (
	"encoding/hex"
	"unicode"
)

// A Difference is a value that differs between two definitions. Old and New are JSON, with escapes
// for characters that are not printable; "" = the definition has no such value. If only the hash of
// a value is known, it is sha256: and the hash instead.
type Difference struct {
	Path     string // such as inputSchema.properties.id.description
	Old, New string
}

// maxDifferences bounds the differences that Diff returns.
const maxDifferences = 1000

// Diff returns the differences between two definitions, in the order of their paths, up to
// maxDifferences. Either may be nil, which counts as a definition without fields.
func (d *Definition) Diff(next *Definition) (all []Difference) {
	if d == nil {
		d = &Definition{}
	}
	if next == nil {
		next = &Definition{}
	}
	for _, p := range d.pairs(next) {
		switch {
		case p.was != nil && p.is != nil && p.was.sum == p.is.sum:
		case p.was == nil || p.is == nil || p.was.value == nil || p.is.value == nil:
			all = append(all, Difference{pathElement(p.name), p.was.text(), p.is.text()})
		default:
			all = appendDifferences(all, pathElement(p.name), p.was.value, p.is.value)
		}
	}
	return all[:min(len(all), maxDifferences)]
}

// text returns the value of a field for a Difference.
func (f *definitionField) text() string {
	switch {
	case f == nil:
		return ""
	case f.value == nil:
		return hashPrefix + hex.EncodeToString(f.sum[:])
	}
	return string(f.value)
}

// appendDifferences appends the differences between two canonical values. Objects are compared
// member by member, unless a name occurs twice.
func appendDifferences(all []Difference, path string, was, is []byte) []Difference {
	if string(was) == string(is) || len(all) > maxDifferences {
		return all
	}
	a, ok := uniqueMembers(was)
	b, both := uniqueMembers(is)
	if !ok || !both {
		return append(all, Difference{path, string(was), string(is)})
	}
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].name < b[0].name:
			all = append(all, Difference{path + "." + pathElement(a[0].name),
				string(a[0].value), ""})
			a = a[1:]
		case len(a) == 0 || b[0].name < a[0].name:
			all = append(all, Difference{path + "." + pathElement(b[0].name), "",
				string(b[0].value)})
			b = b[1:]
		default:
			all = appendDifferences(all, path+"."+pathElement(a[0].name), a[0].value, b[0].value)
			a, b = a[1:], b[1:]
		}
	}
	return all
}

// uniqueMembers returns the members of an object. ok is false if the value is not an object, or if
// a name occurs twice.
func uniqueMembers(value []byte) (all []canonicalMember, ok bool) {
	if value[0] != '{' {
		return nil, false
	}
	all, ok = members(value)
	for i := 1; i < len(all); i++ {
		ok = ok && all[i].name != all[i-1].name
	}
	return all, ok
}

// pathElement returns a name as an element of a path, in quotes if it contains other characters
// than letters, digits and some signs.
func pathElement(name string) string {
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' && r != '$' {
			return string(appendString(nil, name))
		}
	}
	if name == "" {
		return `""`
	}
	return name
}
