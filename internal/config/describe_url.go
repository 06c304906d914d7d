package config

import (
	"strings"

	"mcpgateway/internal/config/internal/expand"

	"mcpgateway/internal/lazy"
)

// piece is a part of a text with references: text without any, or one reference.
type piece struct {
	text string      // as it is written
	ref  *expand.Ref // nil = text without references, or a word that only another client knows
}

// pieces splits a text into its pieces. It knows ${env:VAR} of other clients, too: in a file of ours
// that is an error.
func pieces(s string) (all []piece) {
	literal := 0 // the length of the text before the next reference
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

// shownURL returns a URL as it is written, without its password and its query. The defaults of
// references in it are shown in the same way. It never leaves out a part that can become the host:
// it leaves out only text behind a ? or #, and text between a : and an @ without a / between.
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
			if i > 0 && i+1 < len(all) && beforePassword().MatchString(all[i-1].text) && all[i-1].ref == nil &&
				strings.HasPrefix(all[i+1].text, "@") && !strings.ContainsAny(p.ref.Default, "$/?#@") {
				fallback = "xxxxx"
			}
			out.WriteString(strings.TrimSuffix(p.text, p.ref.Default+"}") + fallback + "}")
		}
	}
	return out.String()
}
