package config

import (
	"strings"

	"mcpgateway/internal/config/internal/expand"

	"mcpgateway/internal/lazy"
)

// piece is a part of a text: plain text or one reference.
type piece struct {
	text string      // as written
	ref  *expand.Ref // nil = plain text, or a reference that only another client supports
}

// pieces splits a text into plain text and references. It also splits off ${env:VAR} of other
// clients, which is an error in a file of the gateway.
func pieces(s string) (all []piece) {
	literal := 0 // length of the plain text before the next reference
	add := func(length int, r *expand.Ref) {
		if literal > 0 {
			all = append(all, piece{text: s[:literal]})
		}
		if length > 0 {
			all = append(all, piece{s[literal : literal+length], r})
		}
		s, literal = s[literal+length:], 0
	}
	for literal < len(s) {
		rest := s[literal:]
		inner, found := strings.CutPrefix(rest, "${")
		if strings.HasPrefix(rest, "$$") {
			literal += 2
			continue
		}
		if !found {
			literal++
			continue
		}
		inner = strings.TrimPrefix(inner, "env:")
		if r, length := expand.ParseRef(inner); length > 0 {
			add(len(rest)-len(inner)+length, &r)
		} else if end := strings.Index(rest, "}"); end > 0 {
			add(end+1, nil)
		} else {
			literal = len(s)
		}
	}
	add(0, nil)
	return all
}

var (
	password       = lazy.Regexp(`:[^/?#]+@`)
	beforePassword = lazy.Regexp(`:[^/?#@]*$`)
)

// shownURL returns a URL as written, without its password and query. Defaults in references are
// shown in the same way. A part that could become the host is never omitted: only text after ? or
// #, and text between : and @ without a / in between.
func shownURL(text string) string {
	var out strings.Builder
	all := pieces(text)
	for i, p := range all {
		switch {
		case p.ref == nil && !strings.HasPrefix(p.text, "${"):
			before, rest := p.text, ""
			if end := strings.IndexAny(p.text, "?#"); end >= 0 {
				before, rest = p.text[:end], p.text[end:]
			}
			out.WriteString(password().ReplaceAllString(before, ":xxxxx@"))
			if rest != "" {
				out.WriteString(rest[:1] + "…")
				return out.String()
			}
		case p.ref == nil || !p.ref.HasDefault:
			out.WriteString(p.text)
		default:
			fallback := shownURL(p.ref.Default)
			if i > 0 && i+1 < len(all) && beforePassword().MatchString(all[i-1].text) &&
				all[i-1].ref == nil &&
				strings.HasPrefix(all[i+1].text, "@") &&
				!strings.ContainsAny(p.ref.Default, "$/?#@") {
				fallback = "xxxxx"
			}
			out.WriteString(strings.TrimSuffix(p.text, p.ref.Default+"}") + fallback + "}")
		}
	}
	return out.String()
}
