package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/secrets"
)

// Describe returns one line for each effect that a file would have: programs to start, URLs to
// call, variables to pass on, files to read and write, secrets to read from the keyring, and
// clients to accept. It reads and runs none of them. Values are shown as written, with references
// and their defaults. Tokens and header values that are written in the file are not shown, nor
// passwords and queries of URLs, nor variables in env that look like secrets. Secrets in arguments
// of a program are shown. A backend counts as enabled if its value of enabled depends on a
// variable. Describe returns an error only if the file cannot be parsed; Load reports the other
// errors. The lines contain text of the file, so the caller must escape control characters.
func Describe(path string, data []byte) ([]string, error) {
	written := newWrittenReader()
	r := &fileParser{fileReport: newFileReport(path), scalars: written, env: expand.AllSet}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), r); err != nil {
		return nil, err
	}
	out := settings{Config: Default(), Defaults: builtinDefaults()}
	if err := decode(k, &out); err != nil {
		return nil, err
	}
	c := &out.Config
	applyDefaults(c, out.Defaults, r.locations)
	var d description
	d.gateway(c)
	d.sources("the gateway", c.EnvFile, written.sourcesIn(""))
	d.instructions("the gateway", c.Instructions, written.variables["instructions"])
	passed := written.passedOn()
	for i := range c.Backends {
		if b := &c.Backends[i]; b.Enabled {
			at := fmt.Sprintf("backends[%d]", i)
			d.backend(b, passed[at])
			d.sources("backend "+b.Name, b.EnvFile, written.sourcesIn(at+"."))
			d.instructions("backend "+b.Name, b.Instructions,
				written.variables[at+".instructions"])
		}
	}
	return d, nil
}

// description is the list of lines that Describe returns.
type description []string

// add appends a line, unless values is empty.
func (d *description) add(does, values string) {
	if values != "" {
		*d = append(*d, does+": "+values)
	}
}

func (d *description) gateway(c *Config) {
	for _, f := range []struct{ does, file string }{
		{"writes audit records to", c.Audit.File}, {"writes its state to", c.State},
		{"reads the certificate", c.TLS.Cert}, {"reads the key", c.TLS.Key},
	} {
		if f.file != PathNone {
			d.add(f.does, f.file)
		}
	}
	if c.Audit.Payloads != "none" && c.Audit.File != PathNone {
		d.add("records payloads of calls", c.Audit.Payloads)
	}
	if c.OTel.Endpoint != PathNone {
		d.add("sends traces of calls to", shownURL(c.OTel.Endpoint))
	}
	d.add("sends traces with the headers",
		strings.Join(slices.Sorted(maps.Keys(c.OTel.Headers)), ", "))
	d.add("listens on", c.Listen)
	d.add("serves the admin API on", c.Admin.Listen)
	var tokens []string
	for _, token := range c.Auth.Tokens {
		shown := shownToken(token.Text)
		if token.Name != "" {
			shown = token.Name + ": " + shown
		}
		if token.Profile != "" {
			shown += " (profile " + token.Profile + ")"
		}
		tokens = append(tokens, shown)
	}
	d.add("accepts the tokens", strings.Join(tokens, ", "))
	d.add("accepts access tokens of", c.Auth.OAuth.Issuer)
	d.add("accepts access tokens for", c.Auth.OAuth.Audience)
	if c.Auth.OAuth.AllowPrivate {
		d.add("may ask the authorization server at", "private addresses of other hosts")
	}
	d.add("asks the authorization server about tokens as the client",
		c.Auth.OAuth.Introspection.ClientID)
	d.add("accepts web pages of", strings.Join(c.Origins, ", "))
	d.add("accepts requests for the hosts", strings.Join(c.Hosts, ", "))
}

// shownToken returns a reference to a token as written. A token that is in the file itself is not
// shown.
func shownToken(token string) string {
	all := pieces(token)
	isReference := len(all) == 1 && all[0].ref != nil && !all[0].ref.HasDefault
	if token == AutoToken || isReference {
		return token
	}
	return "a token written in the file"
}

// shownEnv returns variables with their values, because many variables decide what a program
// runs, such as PATH, NODE_OPTIONS and LD_PRELOAD. If the name or the value looks like a secret,
// the value is omitted, unless it contains a reference.
func shownEnv(env map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		if (secrets.IsSecretName(name) || secrets.LooksSecret(value)) &&
			expand.References(value) == nil {
			value = "…"
		}
		all = append(all, name+"="+quoted([]string{value})[0])
	}
	return all
}

// backend describes b. variables are the variables of the gateway's environment that are passed to
// b.
func (d *description) backend(b *Backend, variables []string) {
	name := "backend " + b.Name
	if b.Command != "" {
		line := strings.Join(quoted(append([]string{b.Command}, b.Args...)), " ")
		if b.Cwd != "" {
			line += " in " + b.Cwd
		}
		d.add(name+" starts", line)
		d.add(name+" gets the variables that the file sets", strings.Join(shownEnv(b.Env), ", "))
	}
	if b.URL != "" {
		d.add(name+" calls", shownURL(b.URL))
		d.add(name+" gets the headers", strings.Join(slices.Sorted(maps.Keys(b.Headers)), ", "))
	}
	for _, f := range []struct{ does, value string }{
		{"reads the certificate", b.TLS.Cert}, {"reads the key", b.TLS.Key},
		{"trusts the authorities in", b.TLS.CA},
		{"may present a certificate for", b.TLS.ServerName},
		{"logs in as the client", b.OAuth.ClientID},
		{"logs in as the client", b.OAuth.ClientMetadataURL},
		{"asks for the scopes", strings.Join(b.OAuth.Scopes, " ")},
	} {
		d.add(name+" "+f.does, f.value)
	}
	if b.OAuth.Per == PerPrincipal {
		d.add(name+" has a login for", "each client")
	}
	if b.OAuth.AllowPrivate {
		d.add(name+" may lead logins to", "private addresses, and over http")
	}
	gets := " gets the variables of your environment"
	if b.Command == "" {
		gets = " sends the variables of your environment"
	}
	variables = append(variables, b.InheritEnv...)
	slices.Sort(variables)
	d.add(name+gets, strings.Join(slices.Compact(variables), ", "))
}

// sources describes where the values of the gateway or of a backend come from, other than the file
// and the environment.
func (d *description) sources(who, envFile string, all []expand.ValueSource) {
	d.add(who+" gets the variables in", envFile)
	for _, s := range all {
		does := map[expand.SourceKind]string{
			expand.File:    " gets the content of",
			expand.Keyring: " gets the secret of the keyring",
			expand.Command: " gets the output of the command",
		}[s.Kind]
		d.add(who+does, s.Written)
	}
}

// instructions describes a text that replaces the instructions of servers.
func (d *description) instructions(who, text string, variables []string) {
	if text == "" || text == NoInstructions {
		return
	}
	d.add(who+" tells models", strconv.Quote(text))
	d.add(who+" tells models the variables of your environment", strings.Join(variables, ", "))
}

// A writtenReader is the scalarReader of a configuration that is only described: it does not expand
// values, and contains the references in each value.
type writtenReader struct {
	variables map[string][]string // by path
	sources   *[]writtenSource    // in the order of the file
}

func newWrittenReader() writtenReader {
	return writtenReader{variables: map[string][]string{}, sources: new([]writtenSource)}
}

// writtenSource is a reference that is not a variable.
type writtenSource struct {
	path string // of the value that contains it
	expand.ValueSource
}

// read implements scalarReader.
func (w writtenReader) read(
	n *yaml.Node, t reflect.Type, at location, b currentBackend, x *expand.Expander,
) (any, bool) {
	w.variables[at.path] = x.Variables(n.Value)
	if !b.inForeignEntry {
		for _, s := range expand.Sources(n.Value) {
			*w.sources = append(*w.sources, writtenSource{at.path, s})
		}
	}
	v, err := convert(n.Value, t)
	return v, err == nil
}

// sourcesIn returns the references in the values of a backend, whose path begins with at, or
// outside of backends if at is "".
func (w writtenReader) sourcesIn(at string) (all []expand.ValueSource) {
	for _, s := range *w.sources {
		inBackend := strings.HasPrefix(s.path, "backends[")
		if at == "" && !inBackend || at != "" && strings.HasPrefix(s.path, at) {
			all = append(all, s.ValueSource)
		}
	}
	return all
}

// needs implements scalarReader.
func (writtenReader) needs(string, currentBackend) bool { return false }

// passedOn returns, by the path of each backend, the variables in the values that are passed to the
// backend.
func (w writtenReader) passedOn() map[string][]string {
	all := make(map[string][]string)
	for path, names := range w.variables {
		at, key, ok := strings.Cut(path, "].")
		if !ok || !strings.HasPrefix(path, "backends[") {
			continue
		}
		first := key[:strings.IndexAny(key+".", ".[")]
		if slices.Contains([]string{"command", "args", "env", "cwd", "url", "headers"}, first) ||
			key == "tls.server_name" || key == "oauth.client_id" || key == "oauth.client_secret" {
			all[at+"]"] = append(all[at+"]"], names...)
		}
	}
	return all
}

// quoted puts quotes around each word that is empty or contains white space or a quote.
func quoted(words []string) []string {
	for i, word := range words {
		if word == "" || strings.ContainsAny(word, " \t\r\n\"'") {
			words[i] = fmt.Sprintf("%q", word)
		}
	}
	return words
}

// piece is a part of a text: either plain text or one reference.
type piece struct {
	text string      // text as written
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
// shown in the same way. A part that could become the host is never omitted. Only text after ? or
// #, and text between : and @ that contains no /, is omitted.
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
