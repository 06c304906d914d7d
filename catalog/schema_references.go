package catalog

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// normalRef removes an empty fragment from the end of a reference, as Ajv does.
func normalRef(ref string) string {
	if before, ok := strings.CutSuffix(ref, "#/"); ok {
		return before
	}
	return strings.TrimSuffix(ref, "#")
}

// follow returns the target of a reference, or a description of the problem if it has no target or
// begins a chain of more than maxBareRefs references. If the target contains only a reference, the
// method follow returns the target of that reference, if it has one. For a reference to a
// meta-schema, which Ajv has compiled, it returns the schema true.
func (c *schemaCompiler) follow(text string) (p schemaValue, problem string) {
	p, isPointer, ok := c.find(text)
	if !ok {
		return p, "has no target in the schema"
	}
	for range maxBareRefs {
		s, _ := p.value.(map[string]any)
		next, refers := s["$ref"].(string)
		others := slices.ContainsFunc(slices.Collect(maps.Keys(s)), func(key string) bool {
			return isKeyword(key) && key != "$ref"
		})
		if !isPointer || !refers || others {
			return p, ""
		}
		next = normalRef(next)
		if slices.Contains(metaSchemas, next) {
			return schemaValue{value: true, path: appendPath(p.path, "$ref")}, ""
		}
		further, pointer, ok := c.find(next)
		if !ok || !pointer {
			return p, "" // schema compiles, and reports, the reference in p
		}
		if len(further.path) == 0 && truthy(s["$async"]) {
			return p, "" // Ajv compiles p, with its $async, only if p refers to the root
		}
		p, isPointer = further, pointer
	}
	return p, "refers to itself, or to too many references in a row"
}

// hasNoIdentifier contains the tokens of JSON pointers whose target Ajv does not check for an $id.
var hasNoIdentifier = []string{"properties", "patternProperties", "enum", "dependencies",
	"definitions"}

// find returns the target of a JSON pointer or an anchor. ok is false if it has no target, or one
// to which Ajv or package protocol cannot resolve the reference.
func (c *schemaCompiler) find(ref string) (p schemaValue, isPointer, ok bool) {
	if ref == "" {
		return schemaValue{value: c.root}, true, true
	}
	fragment, isFragment := strings.CutPrefix(ref, "#")
	if !isFragment {
		return schemaValue{}, false, false
	}
	if !strings.HasPrefix(fragment, "/") {
		p, ok = c.anchors[fragment]
		return p, false, ok && len(p.path) > 0
	}
	p.value = c.root
	names := false // the next token is a name, not a keyword
	for token := range strings.SplitSeq(fragment[1:], "/") {
		token, err := url.PathUnescape(token)
		if err != nil {
			return schemaValue{}, true, false
		}
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch in := p.value.(type) {
		case map[string]any:
			p.value, ok = in[token]
		case []any:
			n, isIndex := parseIndex(token, len(in))
			if ok = isIndex; ok {
				p.value = in[n]
			}
		case string: // JavaScript indexes the UTF-16 code units of a string
			if _, ok = parseIndex(token, len(utf16.Encode([]rune(in)))); ok {
				p.value = "x" // any character
			}
		default:
			ok = false
		}
		if !ok || token == "__proto__" { // the npm SDK removes __proto__ in some places
			return schemaValue{}, true, false
		}
		p.path = append(p.path, token)
		p.inData = p.inData || !names && (token == "const" || token == "enum" ||
			token == "default" || token == "examples")
		names = !names && slices.Contains(schemaMaps, token)
		if s, _ := p.value.(map[string]any); truthy(s["$id"]) &&
			!slices.Contains(hasNoIdentifier, token) {
			return schemaValue{}, true, false // Ajv would resolve references relative to the $id
		}
	}
	// package protocol does not relocate references in data
	return p, true, !p.inData || !hasReference(p.value)
}

// parseIndex parses a token of a JSON pointer as an index that is less than length.
func parseIndex(token string, length int) (n int, ok bool) {
	n, err := strconv.Atoi(token)
	return n, err == nil && 0 <= n && n < length && strconv.Itoa(n) == token
}

// hasReference reports whether a value contains a reference or a dynamic anchor.
func hasReference(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch key {
			case "$ref", "$recursiveRef", "$recursiveAnchor", "$dynamicRef", "$dynamicAnchor":
				return true
			}
			if hasReference(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasReference)
	}
	return false
}
