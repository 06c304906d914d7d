package config

import (
	"regexp"
	"slices"
	"strings"
)

// hideSecrets does so in all servers. First it takes note of the variables that
// any of them refers to.
func (im *importer) hideSecrets() {
	for i := range im.out.servers {
		im.claim(&im.out.servers[i])
	}
	for i := range im.out.servers {
		im.hideIn(&im.out.servers[i])
	}
}

// claim notes the variables that s refers to by itself: none of ours may take
// their names.
func (im *importer) claim(s *server) {
	for _, one := range s.all() {
		for _, name := range refersTo(one) {
			if _, known := im.vars[name]; !known {
				im.vars[name] = unknown
			}
		}
	}
}

// all lists the strings of s that may refer to variables.
func (s *server) all() []string {
	all := slices.Concat([]string{s.command, s.cwd, s.url}, s.args)
	for _, n := range slices.Concat(s.env, s.headers) {
		all = append(all, n.value)
	}
	return slices.Concat(all, s.inherit, s.tools.Allow, s.tools.Deny)
}

// unknown stands for the value of a variable that the user has set already.
const unknown = "\x00"

// hideIn puts a variable in the place of each value that looks secret.
func (im *importer) hideIn(s *server) {
	for i, e := range s.env {
		if isSecret(e.name, e.value) {
			want := e.name
			if nameLength(want) != len(want) {
				want = variable(want)
			}
			s.env[i].value = im.hide(s, want, e.value, "env "+e.name)
		}
	}
	for i, h := range s.headers {
		if isSecret(h.name, h.value) {
			s.headers[i].value = im.hideCredentials(s, h.name, h.value, "header "+h.name)
		}
	}
	for i, arg := range s.args {
		flag := ""
		if i > 0 && strings.HasPrefix(s.args[i-1], "-") && !strings.HasPrefix(arg, "-") {
			flag = s.args[i-1]
		}
		s.args[i] = im.hideInArg(s, flag, arg)
	}
	s.url = im.hideInURL(s, s.url)
}

// assignment matches --api-key=x, API_KEY=x and Authorization: Bearer x.
var assignment = regexp.MustCompile(`(?s)^(-{0,2}[A-Za-z][\w.-]*)(=|: *)(.+)$`)

// hideInArg hides what is secret in an argument. flag stands before it, "" if
// no flag does.
func (im *importer) hideInArg(s *server, flag, arg string) string {
	if secretName(flag) && isSecret(flag, arg) {
		return im.hideCredentials(s, flag, arg, "argument "+flag)
	}
	if m := assignment.FindStringSubmatch(arg); m != nil && !strings.HasPrefix(m[3], "//") {
		name, sign, value := m[1], m[2], m[3]
		switch {
		case strings.Contains(value, "://") && !secretName(name):
			return name + sign + im.hideInURL(s, value)
		case isSecret(name, value):
			return name + sign + im.hideCredentials(s, name, value, "argument "+name)
		}
		return arg
	}
	if strings.Contains(arg, "://") {
		return im.hideInURL(s, arg)
	}
	if isSecret("", arg) {
		return im.hide(s, prefixed(s, "secret"), arg, "an argument")
	}
	return arg
}

// hideInURL hides the password, query values and parts of the path that are
// secret. It takes the text apart, not the URL: there may be ${VAR} in it.
func (im *importer) hideInURL(s *server, raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	parts := strings.Split(rest, "/")
	if user, host, ok := cutLast(parts[0], "@"); ok {
		name, password, both := strings.Cut(user, ":")
		switch {
		case both && password != "" && refersTo(password) == nil:
			parts[0] = name + ":" + im.hide(s, prefixed(s, "password"), password, "the password in a URL") + "@" + host
		case !both && isSecret("", user):
			parts[0] = im.hide(s, prefixed(s, "token"), user, "the user in a URL") + "@" + host
		}
	}
	for i, part := range parts[1:] {
		if isSecret("", part) {
			parts[i+1] = im.hide(s, prefixed(s, "secret"), part, "the path of a URL")
		}
	}
	out := scheme + "://" + strings.Join(parts, "/")
	if !hasQuery {
		return out
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		if key, value, _ := strings.Cut(pair, "="); isSecret(key, value) {
			pairs[i] = key + "=" + im.hide(s, prefixed(s, key), value, "query value "+key)
		}
	}
	return out + "?" + strings.Join(pairs, "&")
}

// hide returns the reference that takes the place of value, and notes it.
func (im *importer) hide(s *server, want, value, what string) string {
	name := im.variable(s, want, strings.ReplaceAll(value, "$$", "$"))
	im.note("%s: %s: %s is ${%s} here; set it to what stands in that file", s.file, s.name, what, name)
	return "${" + name + "}"
}

// hideCredentials hides the value of a header or an argument, all but a Bearer
// or Basic that it begins with.
func (im *importer) hideCredentials(s *server, key, value, what string) string {
	secret := credentials(value)
	scheme := strings.TrimSuffix(value, secret)
	if scheme != "" {
		what += " after " + strings.TrimSpace(scheme)
	}
	return scheme + im.hide(s, prefixed(s, key), secret, what)
}

// variable finds a name near want that is free, or stands for literal already.
func (im *importer) variable(s *server, want, literal string) string {
	own := want
	if prefix := variable(s.name) + "_"; !strings.HasPrefix(want, prefix) {
		own = prefix + want
	}
	for name := want; ; name, own = own, own+"_2" {
		if value, taken := im.vars[name]; !taken || value == literal {
			im.vars[name] = literal
			return name
		}
	}
}

// prefixed makes the name of a variable from a header, flag or query key of s.
// One in capitals is a variable's name as it is.
func prefixed(s *server, key string) string {
	key = strings.TrimLeft(key, "-")
	if strings.EqualFold(key, "Authorization") {
		key = "token"
	}
	name := variable(key)
	if name == key && strings.Contains(key, "_") {
		return name
	}
	return variable(s.name) + "_" + name
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
