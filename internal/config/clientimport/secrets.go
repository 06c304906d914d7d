package clientimport

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/secrets"
)

// A secretReplacer replaces the secrets in servers by references to variables.
type secretReplacer struct {
	note func(format string, args ...any)
	// variables contains the values of the variables in the YAML; unknownValue = set by the user.
	variables map[string]string
	source    *SecretSource  // nil = the user sets the variables
	stored    []StoredSecret // to store
}

// replaceIn replaces the secrets in all servers. Before this it collects the variables that the
// servers refer to, so that their names are not used for secrets.
func (r *secretReplacer) replaceIn(servers []importedServer) {
	for i := range servers {
		for _, text := range servers[i].texts() {
			for _, name := range expand.Variables(text) {
				if _, known := r.variables[name]; !known {
					r.variables[name] = unknownValue
				}
			}
		}
	}
	for i := range servers {
		r.hideIn(&servers[i])
	}
}

// unknownValue marks a variable that the user sets and whose value is unknown.
const unknownValue = "\x00"

// hideIn replaces each secret in s by a variable.
func (r *secretReplacer) hideIn(s *importedServer) {
	for i, e := range s.env {
		if e.name == "PWD" && strings.ContainsAny(e.value, `/\`) { // the working directory
			continue
		}
		s.env[i].value = r.hide(s, e.name, "env", e.value, secrets.Find)
	}
	for i, h := range s.headers {
		s.headers[i].value = r.hide(s, h.name, "header", h.value, secrets.FindHeader)
	}
	given := slices.Clone(s.args)
	for i, arg := range given {
		name := ""
		if i > 0 {
			name = nameFromPrevious(given[i-1], arg)
		}
		s.args[i] = r.hide(s, name, "argument", arg, secrets.FindArgument)
	}
	s.command = r.hide(s, "", "command", s.command, secrets.Find)
	s.url = r.hide(s, "", "url", s.url, secrets.FindInServerURL)
}

// nameFromPrevious returns the name that the argument before gives to the argument arg; "" = no
// name. For x in --api-key x it is --api-key, and in set api-key x it is api-key. After a name
// without dashes, arg must have at least 8 characters, one of which is a digit.
func nameFromPrevious(before, arg string) string {
	switch {
	case strings.HasPrefix(arg, "-"), strings.Contains(before, "="):
		return ""
	case strings.HasPrefix(before, "-"):
		return before
	case !bareName().MatchString(before) || !secrets.IsSecretName(before):
		return ""
	case len(arg) >= 8 && strings.ContainsAny(arg, "0123456789"):
		return before
	}
	return ""
}

var bareName = lazy.Regexp(`^[A-Za-z][\w.-]*$`)

// hide replaces the secrets in text by references to variables and adds notes. The argument name is
// the name of the value, and the argument what describes the key of s that contains the value.
func (r *secretReplacer) hide(s *importedServer, name, what, text string,
	find func(name, text string) []secrets.Secret) string {
	if storeReference().MatchString(secrets.AfterScheme(text)) && programName(s.command) != "op" {
		return r.replaceStoreReference(s, name, what, text)
	}
	text = r.dropDefaults(s, name, text, find)
	var out strings.Builder
	at := 0
	for _, p := range find(name, maskReferences(text)) {
		pieces := outsideReferences(text, p, s.env)
		if literalReference().MatchString(secrets.AfterScheme(text[p.From:p.To])) {
			pieces = secretsInLiteral(text, p)
		}
		for _, piece := range pieces {
			out.WriteString(text[at:piece.From] + r.replaceSecret(s, what, name, text, piece))
			at = piece.To
		}
	}
	return out.String() + text[at:]
}

// storeReference matches a reference to a secret store, which another program resolves:
// op://vault/item.
var storeReference = lazy.Regexp(
	`^(?:op|vault|ref\+[a-z]+|doppler|infisical|bws?|keychain|keyring|pass|secrets?|` +
		`aws-?sm|gcp-?sm|akv|kv)://[^\s?@]+$`)

// opReference matches a reference of 1Password that is one word of a command.
var opReference = lazy.Regexp(`^op://[\w./-]+$`)

// replaceStoreReference replaces a reference to a secret store by a command that reads it or, if no
// such command is known, by a variable.
func (r *secretReplacer) replaceStoreReference(s *importedServer, name, what, text string) string {
	reference := secrets.AfterScheme(text)
	scheme, _, _ := strings.Cut(reference, "://")
	if opReference().MatchString(reference) {
		r.note("%s: %s: %s was op://… and is ${command:op read op://…} here", s.file, s.name,
			strings.TrimSpace(what+" "+name))
		return strings.TrimSuffix(text, reference) + "${command:op read " + reference + "}"
	}
	want := variableFor(s, name)
	if what == "env" && expand.NameLength(name) == len(name) {
		want = name
	}
	free := r.freeVariable(s, want, strings.ReplaceAll(reference, "$$", "$"))
	how := "set it to the secret that it refers to"
	if scheme == "op" {
		how = "set it to that, and start the gateway with: op run -- gateway"
	}
	where := strings.TrimSpace(what + " " + name)
	r.note("%s: %s: %s was %s://… and is ${%s} here; %s", s.file, s.name, where, scheme, free, how)
	return strings.TrimSuffix(text, reference) + "${" + free + "}"
}

// dropDefaults removes defaults that are secrets: ${TOKEN:-secret} becomes ${TOKEN}.
func (r *secretReplacer) dropDefaults(s *importedServer, name, text string,
	find func(name, text string) []secrets.Secret) string {
	for _, ref := range slices.Backward(expand.References(text)) {
		if !ref.HasDefault {
			continue
		}
		probe := text[:ref.From] + ref.Default + text[ref.To:]
		overlaps := func(p secrets.Secret) bool {
			return p.From < ref.From+len(ref.Default) && ref.From < p.To
		}
		if secrets.IsSecret(ref.Name, ref.Default) ||
			slices.ContainsFunc(find(name, maskReferences(probe)), overlaps) {
			text = text[:ref.From] + "${" + ref.Name + "}" + text[ref.To:]
			r.note(
				"%s: %s: the default of ${%s} is omitted, because it looks like a secret; set %s",
				s.file, s.name, ref.Name, ref.Name)
		}
	}
	return text
}

// outsideReferences returns the pieces of a secret that are outside of references to variables. If
// the secret contains references, most pieces are names or separators. Such a piece is returned
// only if it looks like a secret, or has at least 8 characters and a digit.
func outsideReferences(text string, p secrets.Secret, env []namedValue) []secrets.Secret {
	var pieces []secrets.Secret
	from, cut := p.From, false
	add := func(to int) {
		piece := text[min(from, to):to]
		if from < to && (!cut || len(piece) >= 8 && strings.ContainsAny(piece, "0123456789") ||
			secrets.LooksSecret(piece)) {
			pieces = append(pieces, secrets.Secret{From: from, To: to, Name: p.Name})
		}
	}
	for _, r := range slices.Concat(expand.References(text), envReferences(text, env)) {
		if r.From < p.To && p.From < r.To && from <= r.From {
			cut = true
			add(r.From)
			from = r.To
		}
	}
	add(p.To)
	return pieces
}

// literalReference matches references that are escaped because the program itself expands them.
var literalReference = lazy.Regexp(`^(?:\$\$\{[A-Za-z_][\w:.-]*\})+$`)

// secretsInLiteral returns the parts of a literal reference that look like secrets by themselves,
// such as the default in $${NAME:default}.
func secretsInLiteral(text string, reference secrets.Secret) (parts []secrets.Secret) {
	for _, p := range secrets.Find("", text[reference.From:reference.To]) {
		p.From, p.To = p.From+reference.From, p.To+reference.From
		if secrets.LooksSecret(text[p.From:p.To]) {
			parts = append(parts, p)
		}
	}
	return parts
}

// envReferences returns the first reference $${X} and the first reference $$X in a string, for each
// variable X in env.
func envReferences(text string, env []namedValue) []expand.Reference {
	var all []expand.Reference
	for _, e := range env {
		for _, whole := range []string{"$${" + e.name + "}", "$$" + e.name} {
			i := strings.Index(text, whole)
			end := i + len(whole)
			if i >= 0 && e.name != "" &&
				(end == len(text) || whole[2] == '{' || !isWordByte(text[end])) {
				all = append(all, expand.Reference{Ref: expand.Ref{Name: e.name}, From: i, To: end})
			}
		}
	}
	return all
}

func isWordByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// maskReferences replaces references by digits, so that they do not hide the form of the text:
// {"pin":${PIN}} becomes valid JSON.
func maskReferences(text string) string {
	all := expand.References(text)
	if all == nil {
		return text
	}
	out := []byte(text)
	for _, r := range all {
		copy(out[r.From:r.To], bytes.Repeat([]byte("1"), r.To-r.From))
	}
	return string(out)
}

// replaceSecret returns the reference that replaces a secret, and adds a note.
func (r *secretReplacer) replaceSecret(s *importedServer, what, name, text string,
	p secrets.Secret) string {
	want, where := variableFor(s, p.Name), strings.TrimSpace(what+" "+name)
	switch {
	case what == "env" && p.Name == name && p.To == len(text):
		want = name
		if expand.NameLength(want) != len(want) {
			want = expand.VariableName(want)
		}
	case p.Name == "" || p.Name == "path":
		want = variableFor(s, "secret")
	case p.Name == "user":
		want = variableFor(s, "token")
	}
	switch {
	case p.Name == "password" && strings.HasPrefix(text[p.To:], "@"):
		where = "the password in " + where
	case p.Name == "path":
		where = "a part of the path in " + where
	case p.Name != "" && p.Name != name:
		where += " (" + p.Name + ")"
	}
	if before := strings.TrimSpace(text[:p.From]); secrets.AfterScheme(before+" x") == "x" {
		where += " after " + before
	}
	literal := strings.ReplaceAll(text[p.From:p.To], "$$", "$")
	free := r.freeVariable(s, want, literal)
	if r.source == nil {
		r.note("%s: %s: %s is ${%s} here; set this variable to the value in that file", s.file,
			s.name, where, free)
		return "${" + free + "}"
	}
	if secret := (StoredSecret{free, literal}); !slices.Contains(r.stored, secret) {
		r.stored = append(r.stored, secret)
	}
	reference := "${" + free + "}"
	if r.source.Keyring {
		reference = "${keyring:" + free + "}"
	}
	r.note("%s: %s: %s is %s here; the value is stored in %s", s.file, s.name, where, reference,
		r.source.Title)
	return reference
}

// isFree reports whether a name can be used for a secret: it is not used, or has this value
// already.
func (r *secretReplacer) isFree(name, literal string) bool {
	if value, taken := r.variables[name]; taken {
		return value == literal
	}
	if r.source == nil {
		return true
	}
	value, taken := r.source.Value(name)
	return !taken || value == literal
}

// freeVariable returns a variable name similar to the name want. The variable is unused or already
// has the value literal.
func (r *secretReplacer) freeVariable(s *importedServer, want, literal string) string {
	prefixedName := want
	if prefix := expand.VariableName(s.name) + "_"; !strings.HasPrefix(want, prefix) {
		prefixedName = prefix + want
	}
	for name, n := want, 2; ; n++ {
		if r.isFree(name, literal) {
			r.variables[name] = literal
			return name
		}
		if name == want && prefixedName != want {
			name, n = prefixedName, n-1
		} else {
			name = fmt.Sprintf("%s_%d", prefixedName, n)
		}
	}
}

// variableFor returns the variable name for a header, flag or query key of s. A key that is written
// like a variable name and contains _ is used unchanged. Any other name begins with the name of s.
func variableFor(s *importedServer, key string) string {
	key = strings.TrimLeft(key, "-_")
	if strings.EqualFold(key, "Authorization") {
		key = "token"
	}
	name := expand.VariableName(key)
	if name == key && strings.Contains(key, "_") {
		return name
	}
	return expand.VariableName(s.name) + "_" + name
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
