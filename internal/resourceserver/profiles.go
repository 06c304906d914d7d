package resourceserver

import (
	"encoding/json"
	"slices"
	"strings"
)

// A ProfileSelector gives a profile to the tokens that have a scope, or a value of a claim. Without
// Scope and Claim it applies to every token.
type ProfileSelector struct {
	Scope string
	// Claim is the name of a claim, or the names of a claim and of members in it, joined by dots. A
	// claim with the whole text as its name takes precedence.
	Claim string
	// Value is the value of the claim, or one of its values if the claim is a list. A number or
	// boolean is compared by its JSON text.
	Value   string
	Profile string
}

// appliesTo reports whether a token with these claims gets the profile.
func (r ProfileSelector) appliesTo(c *claims) bool {
	switch {
	case r.Scope != "":
		return slices.Contains(c.scopes, r.Scope)
	case r.Claim != "":
		return slices.Contains(valuesOf(c.all, r.Claim), r.Value)
	}
	return true
}

// valuesOf returns the values of a claim, or of a member in it; see ProfileSelector.Claim.
func valuesOf(object map[string]json.RawMessage, path string) (values []string) {
	for {
		if raw, ok := object[path]; ok {
			return scalars(raw)
		}
		name, rest, ok := strings.Cut(path, ".")
		if !ok {
			return nil
		}
		var inner map[string]json.RawMessage
		if json.Unmarshal(object[name], &inner) != nil {
			return nil
		}
		object, path = inner, rest
	}
}

// scalars returns the text of a string, number or boolean, or of those in a list.
func scalars(raw json.RawMessage) []string {
	items := []json.RawMessage{raw}
	if raw[0] == '[' && json.Unmarshal(raw, &items) != nil {
		return nil
	}
	var texts []string
	for _, item := range items {
		var text string
		switch item[0] {
		case '{', '[', 'n': // null has no value
			continue
		case '"':
			if json.Unmarshal(item, &text) != nil {
				continue
			}
		default:
			text = string(item)
		}
		texts = append(texts, text)
	}
	return texts
}

// profileScopes returns the scopes that give a profile, without the required ones.
func (o *Options) profileScopes() (scopes []string) {
	for _, selector := range o.Profiles {
		if selector.Scope != "" && !slices.Contains(scopes, selector.Scope) &&
			!slices.Contains(o.Scopes, selector.Scope) {
			scopes = append(scopes, selector.Scope)
		}
	}
	return scopes
}
