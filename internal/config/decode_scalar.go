package config

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/lazy"
)

// A variableReader is the scalarReader of a configuration in use: it expands the references to
// variables.
type variableReader struct {
	*fileReport
	requiredKeys []string // see Options
	sources      *sourceReader

	secretValues  []string        // secrets in the variables of backends and tokens
	tokenVariable string          // variable whose value is the first token; "" = none
	fromVariables map[string]bool // paths of values that contain variables
	misconfigured misconfigurations
	literals      literalCheck
}

// read implements scalarReader. For a key of type string, 8080 and true are strings. A boolean or a
// whole number must not be quoted, unless it contains ${VAR}.
func (r *variableReader) read(
	n *yaml.Node, t reflect.Type, at location, b currentBackend, x *expand.Expander,
) (any, bool) {
	if n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" {
		r.fail(at, "YAML tags are not supported", "")
		return nil, false
	}
	if t.Kind() == reflect.String {
		r.literals.check(n, at, b)
	}
	text := x.Expand(n.Value)
	if !r.recordExpansion(x, at, b) {
		return nil, false
	}
	r.fromVariables[at.path] = len(x.Expanded) > 0
	key := strings.TrimPrefix(at.path, b.path+".")
	if empty := emptyReference(x.Expanded, key, text); empty != nil && !b.disabled &&
		r.misconfigure(at, empty.Shown+" is empty"+remedyOfEmpty(*empty)) {
		return nil, false
	}
	isFirst := at.path == "auth.tokens[0]" || at.path == "auth.tokens[0].token"
	if isFirst && len(x.Expanded) == 1 && x.Expanded[0].Value == text {
		r.tokenVariable = x.Expanded[0].Variable
	}
	if strings.ContainsRune(text, 0) {
		r.fail(at, "contains a NUL character", "")
		return nil, false
	}
	if key == "env_file" && !r.checkEnvFile(text, at, b) {
		return nil, false
	}
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
	if kind := t.Kind(); quoted && !x.Used && (kind == reflect.Bool || kind == reflect.Int) {
		r.fail(at, "must be "+expectedForm(t)+", without quotes", "")
		return nil, false
	}
	v, err := convert(text, t)
	if err != nil && len(x.Expanded) > 0 &&
		r.misconfigure(at, at.key+": "+err.Error()+node.Not(n.Value)) {
		return nil, false
	}
	if err != nil {
		r.fail(at, err.Error()+node.Not(n.Value), "")
		return nil, false
	}
	return v, true
}

// recordExpansion records the secrets that x inserted and reports its errors. The errors of a
// disabled backend are ignored, because it needs no variables; so are unset variables in optional
// values. recordExpansion returns false if there were errors, including ignored ones.
func (r *variableReader) recordExpansion(
	x *expand.Expander, at location, b currentBackend,
) bool {
	for _, a := range x.Expanded {
		switch {
		case a.Variable == "":
			r.secretValues = append(r.secretValues, sourceSecrets(at.path, a.Value)...)
		case b.path != "", isSecretKey(at.path):
			r.secretValues = append(r.secretValues,
				expandedSecrets(at.path, a.Variable, a.Value)...)
		}
	}
	if !b.disabled {
		for _, t := range x.Errors {
			switch {
			case t.Unset != "" && b.path == "" && r.isOptional(at.path):
				r.reported[at.path] = true
			case t.Unset == "" || !r.misconfigure(at, withRemedy(t)):
				r.fail(at, t.Problem, t.Hint)
			}
		}
	}
	return len(x.Errors) == 0
}

// withRemedy returns a problem and what to do about it.
func withRemedy(t expand.ReferenceError) string {
	if t.Remedy == "" {
		return t.Problem
	}
	return t.Problem + ": " + t.Remedy
}

// checkEnvFile reports a file of env_file that cannot be used, unless the file is not needed.
func (r *variableReader) checkEnvFile(path string, at location, b currentBackend) bool {
	replaced := b.path == "" && r.sources.envFilePath != ""
	if path == "" || r.sources.access == nil || replaced || !r.needs(at.path, b) {
		return true
	}
	err := r.sources.envFile(path).err
	if err != nil && !r.misconfigure(at, "env_file: "+err.Error()) {
		r.fail(at, err.Error(), envFileHint)
	}
	return err == nil
}

// envFileHint is the hint of an error about a file of env_file.
const envFileHint = "a relative path is relative to the folder of the configuration file; " +
	"the file has lines of the form NAME=value"

// needs implements scalarReader.
func (r *variableReader) needs(path string, b currentBackend) bool {
	if b.path != "" {
		return !b.disabled && r.requiredKeys == nil
	}
	return !r.isOptional(path)
}

// isOptional reports whether the key at path, which is outside of backends, is neither one of the
// RequiredKeys nor below one of them. It returns false if RequiredKeys is nil.
func (r *variableReader) isOptional(path string) bool {
	return r.requiredKeys != nil &&
		!slices.ContainsFunc(r.requiredKeys, func(key string) bool {
			return path == key || strings.HasPrefix(path, key+".")
		})
}

// misconfigure records a problem with the variables in a value, which makes the value's backend
// misconfigured. If it returns false, the problem is an error of the file instead.
func (r *variableReader) misconfigure(at location, problem string) bool {
	ok := r.misconfigured.add(at.path, problem)
	if ok {
		r.reported[at.path] = true
	}
	return ok
}

// misconfigurations are the problems with the variables of backends, by the path of the backend. If
// the map is nil, all problems are errors of the file.
type misconfigurations map[string]variableProblems

// variableProblems are the problems with the variables of one backend.
type variableProblems struct {
	problems           []string
	affectsPermissions bool // one of the problems is in a filter or in enabled
}

// add records a problem with the value at path. It returns false if the map is nil, or if the value
// is not in a backend or is the backend's name.
func (m misconfigurations) add(path, problem string) bool {
	entry, key, ok := strings.Cut(path, "].")
	if m == nil || !ok || !strings.HasPrefix(entry, "backends[") || key == "name" {
		return false
	}
	f := m[entry+"]"]
	if !slices.Contains(f.problems, problem) {
		f.problems = append(f.problems, problem)
	}
	f.affectsPermissions = f.affectsPermissions || isFilter(key) || key == "enabled"
	m[entry+"]"] = f
	return true
}

// emptyReference returns the first empty value that makes a target or a header empty, or that
// leaves only a scheme such as Bearer in a value; nil = there is none.
func emptyReference(expanded []expand.Inserted, key, text string) *expand.Inserted {
	header := strings.HasPrefix(key, "headers.")
	rest := strings.TrimSpace(text)
	isTarget := header || key == "command" || key == "url" || key == "embedded"
	switch {
	case rest == "" && isTarget, endsWithScheme().MatchString(text):
	case header && rest != text && !strings.Contains(rest, " "):
	default:
		return nil
	}
	for i, a := range expanded {
		if strings.TrimSpace(a.Value) == "" {
			return &expanded[i]
		}
	}
	return nil
}

// endsWithScheme matches a value that ends with an authorization scheme without credentials.
var endsWithScheme = lazy.Regexp(`(?i)(?:^|[\s:=])(?:bearer|basic)\s+$`)

// remedyOfEmpty returns what to do about an empty value, after a colon; "" = nothing is known.
func remedyOfEmpty(a expand.Inserted) string {
	if a.Variable == "" {
		return ""
	}
	return ": set it where the gateway is started"
}
