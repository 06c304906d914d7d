package config

import (
	"reflect"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/expand"

	"mcpgateway/internal/config/internal/node"

	"go.yaml.in/yaml/v3"
)

// scalar reads one value. A string is taken as it is written, be it 8080 or
// true; nothing else is ever read from a string, save one that ${VAR} is in.
func (r *reader) scalar(n *yaml.Node, t reflect.Type, at place) (any, bool) {
	if r.written != nil {
		x := r.expander()
		r.written[at.path] = x.Variables(n.Value)
		v, err := convert(n.Value, t)
		return v, err == nil
	}
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" {
		r.fail(at, "YAML tags are not supported", "")
		return nil, false
	}
	if t.Kind() == reflect.String {
		r.literal(n, at)
	}
	x := r.expander()
	text := x.Expand(n.Value)
	if !r.arrived(&x, at) {
		return nil, false
	}
	r.expands[at.path] = len(x.Expanded) > 0
	if name := missing(x.Expanded, strings.TrimPrefix(at.path, r.entry+"."), text); name != "" && !r.off &&
		r.isolate(at, "variable "+name+" is empty: set it where the gateway is started") {
		return nil, false
	}
	if at.path == "auth.tokens[0]" && len(x.Expanded) == 1 && x.Expanded[0].Value == text {
		r.token = x.Expanded[0].Name
	}
	if strings.ContainsRune(text, 0) {
		r.fail(at, "contains a NUL character", "")
		return nil, false
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	if kind := t.Kind(); quoted && !x.Used && (kind == reflect.Bool || kind == reflect.Int) {
		r.fail(at, "must be "+wanted(t)+", without quotes", "")
		return nil, false
	}
	v, err := convert(text, t)
	if err != nil && len(x.Expanded) > 0 && r.isolate(at, at.key+": "+err.Error()+node.Not(n.Value)) {
		return nil, false
	}
	if err != nil {
		r.fail(at, err.Error()+node.Not(n.Value), "")
		return nil, false
	}
	return v, true
}

// arrived notes what x brought in and reports what it could not find. A
// disabled backend needs no variables: its value is just left out.
func (r *reader) arrived(x *expand.Expander, at place) bool {
	if r.entry != "" || strings.HasPrefix(at.path, "auth.") {
		for _, a := range x.Expanded {
			r.expanded = append(r.expanded, expandedSecrets(at.path, a.Name, a.Value)...)
		}
	}
	if !r.off {
		for _, t := range x.Errors {
			switch {
			case t.Unset != "" && r.isUnneeded(at.path):
				r.broken[at.path] = true
			case t.Unset == "" || !r.isolate(at, t.Problem+": set it where the gateway is started"):
				r.fail(at, t.Problem, t.Hint)
			}
		}
	}
	return len(x.Errors) == 0
}

// isUnneeded reports whether the value at path is outside of backends, and not one of those that the
// caller of Load reads.
func (r *reader) isUnneeded(path string) bool {
	return r.needs != nil && r.entry == "" && !slices.ContainsFunc(r.needs, func(key string) bool {
		return path == key || strings.HasPrefix(path, key+".")
	})
}

// isolate records a problem that is the variables' of one backend, which is misconfigured then. It
// returns false if the value is not in a backend, or is the backend's name.
func (r *reader) isolate(at place, problem string) bool {
	if r.strict || r.entry == "" || at.path == r.entry+".name" {
		return false
	}
	r.broken[at.path] = true
	r.misconfigured[r.entry] = r.misconfigured[r.entry].with(strings.TrimPrefix(at.path, r.entry+"."), problem)
	return true
}

// faults are the problems with the variables of one backend.
type faults struct {
	problems   []string
	permission bool // one of them is in a key that says what clients may use
}

// with returns f and a problem with the value at key, which is relative to the backend.
func (f faults) with(key, problem string) faults {
	if !slices.Contains(f.problems, problem) {
		f.problems = append(f.problems, problem)
	}
	f.permission = f.permission || isFilter(key) || key == "enabled"
	return f
}

// missing returns the variable that is set but empty and leaves nothing of a value that a backend
// needs: a target, or a header, of which Bearer alone may be left. "" = there is none.
func missing(came []expand.Variable, key, text string) string {
	header := strings.HasPrefix(key, "headers.")
	if !header && key != "command" && key != "url" && key != "embedded" {
		return ""
	}
	if rest := strings.TrimSpace(text); rest != "" && !(header && rest != text && !strings.Contains(rest, " ")) {
		return ""
	}
	for _, a := range came {
		if strings.TrimSpace(a.Value) == "" {
			return a.Name
		}
	}
	return ""
}
