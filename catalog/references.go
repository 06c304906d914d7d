package catalog

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// normalRef returns a reference without an empty fragment at its end, as Ajv does.
func normalRef(ref string) string {
	if before, ok := strings.CutSuffix(ref, "#/"); ok {
		return before
	}
	return strings.TrimSuffix(ref, "#")
}

// follow returns the place to which a reference leads, or why there is none. If a reference and nothing
// else stands there, it is followed, too.
func (c *compiler) follow(text string) (p place, problem string) {
	p, isPointer, ok := c.find(text)
	if !ok {
		return p, "leads nowhere in the schema"
	}
	for range maxBareRefs {
		s, _ := p.value.(map[string]any)
		next, refers := s["$ref"].(string)
		others := slices.ContainsFunc(slices.Collect(maps.Keys(s)), func(key string) bool {
			return isKeyword(key) && key != "$ref"
		})
		if !isPointer || !refers || others || truthy(s["$async"]) {
			return p, ""
		}
		further, pointer, ok := c.find(normalRef(next))
		if !ok || !pointer {
			return p, "" // its own reference is compiled next
		}
		p, isPointer = further, pointer
	}
	return p, "leads back to itself, or through too many references"
}

// hasNoIdentifier are the parts of JSON pointers behind which Ajv does not look for an $id.
var hasNoIdentifier = []string{"properties", "patternProperties", "enum", "dependencies", "definitions"}

// find returns the place of which a reference is the JSON pointer or the anchor.
func (c *compiler) find(ref string) (p place, isPointer, ok bool) {
	if ref == "" {
		return place{value: c.root}, true, true
	}
	fragment, isFragment := strings.CutPrefix(ref, "#")
	if !isFragment {
		return place{}, false, false
	}
	if !strings.HasPrefix(fragment, "/") {
		p, ok = c.anchors[fragment]
		return p, false, ok && len(p.path) > 0
	}
	p.value = c.root
	names := false // the next part is a name, not a keyword
	for token := range strings.SplitSeq(fragment[1:], "/") {
		token, err := url.PathUnescape(token)
		if err != nil {
			return place{}, true, false
		}
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch in := p.value.(type) {
		case map[string]any:
			p.value, ok = in[token]
		case []any:
			n, err := strconv.Atoi(token)
			if ok = err == nil && 0 <= n && n < len(in) && strconv.Itoa(n) == token; ok {
				p.value = in[n]
			}
		default:
			ok = false
		}
		if !ok || token == "__proto__" { // the npm SDK removes that name in some places
			return place{}, true, false
		}
		p.path = append(p.path, token)
		p.data = p.data || !names && (token == "const" || token == "enum" || token == "default" || token == "examples")
		names = !names && slices.Contains(schemaMaps, token)
		if s, _ := p.value.(map[string]any); truthy(s["$id"]) && !slices.Contains(hasNoIdentifier, token) {
			return place{}, true, false // Ajv takes that for an identifier to which references are relative
		}
	}
	return p, true, !p.data || !refers(p.value) // package revision does not change references in data
}

// refers reports whether there is a reference in a value.
func refers(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			switch key {
			case "$ref", "$recursiveRef", "$recursiveAnchor", "$dynamicRef", "$dynamicAnchor":
				return true
			}
			if refers(inner) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, refers)
	}
	return false
}
