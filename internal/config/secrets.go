package config

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"mcpgateway/internal/secrets"
)

// Secrets returns the values that must not appear in a log, longest first: tokens, and all values
// in the environment, headers, arguments and URLs of the backends that are secret by their name or
// form. An opaque value of a variable (secrets.IsOpaque) is also secret. Addresses, numbers, paths
// and words in an ordinary variable are not secret. Values without which the log would be
// unreadable are not secret either: "true", the address of the gateway, and the names, commands,
// working directories and hosts of backends, unless a value in them looks like a secret.
func Secrets(c *Config) []string {
	var all []string
	for _, b := range c.Backends {
		for name, value := range b.Env {
			all = appendVariable(all, name, value)
		}
		for name, value := range b.Headers {
			all = appendHeader(all, name, value)
		}
		for i, arg := range b.Args {
			all = appendParts(all, arg, argumentSecrets(b.Args, i))
		}
		all = append(all, urlSecrets(b.URL)...)
		if b.OAuth.ClientSecret != "" {
			all = append(all, b.OAuth.ClientSecret)
		}
	}
	all = slices.Concat(all, c.Expanded)
	public := publicTexts(c)
	all = slices.DeleteFunc(all, func(value string) bool {
		shown := func(text string) bool { return strings.Contains(text, value) }
		return !secrets.LooksSecret(value) && slices.ContainsFunc(public, shown)
	})
	all = append(all, c.Auth.OAuth.Introspection.ClientSecret)
	all = append(all, urlSecrets(c.OTel.Endpoint)...)
	for name, value := range c.OTel.Headers {
		all = append(appendHeader(all, name, value), value)
	}
	for _, t := range c.Auth.Tokens {
		all = append(all, t.Text)
	}
	all = slices.DeleteFunc(all, isTrivial)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return slices.Compact(all)
}

// argumentSecrets returns the parts of an argument that are secret by their form or because of the
// preceding flag.
func argumentSecrets(args []string, i int) []secrets.Secret {
	flag := ""
	if i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.HasPrefix(args[i], "-") {
		flag = args[i-1]
	}
	return secrets.FindArgument(flag, args[i])
}

// HideArguments returns the arguments of a program with *** in place of secrets. Unlike a mask of
// Secrets, it also hides short values and common words, because their position identifies them as
// secrets.
func HideArguments(args []string) []string {
	hidden := slices.Clone(args)
	for i, arg := range args {
		text, end := "", 0
		for _, p := range argumentSecrets(args, i) { // in order, without overlaps
			text, end = text+arg[end:p.From]+secrets.Redacted, p.To
		}
		hidden[i] = text + arg[end:]
	}
	return hidden
}

// publicTexts returns texts about the gateway and its backends. A value that is a part of such a
// text is not masked in the log, unless the value looks like a secret or is a token.
func publicTexts(c *Config) []string {
	all := []string{c.Listen, c.Admin.Listen, "localhost", "127.0.0.1", "[::1]", "0.0.0.0"}
	for _, b := range c.Backends {
		all = append(all, b.Name, b.Command, b.Cwd)
		if u, err := url.Parse(b.URL); err == nil {
			all = append(all, u.Host)
		}
	}
	return all
}

// appendParts appends the parts of text as written and, if a part is escaped, its unescaped form.
func appendParts(all []string, text string, parts []secrets.Secret) []string {
	for _, p := range parts {
		part := text[p.From:p.To]
		all = append(all, part)
		var plain string
		if strings.Contains(part, `\`) && json.Unmarshal([]byte(`"`+part+`"`), &plain) == nil {
			all = append(all, plain)
		}
		if plain, err := url.QueryUnescape(part); err == nil && plain != part {
			all = append(all, plain)
		}
	}
	return all
}

// appendVariable appends the secrets in the value of a variable, by its name or form.
func appendVariable(all []string, name, value string) []string {
	if secrets.IsShellVariable(name) {
		return all
	}
	if secrets.IsOpaque(name, value) {
		all = append(all, value)
	}
	return appendParts(all, value, secrets.Find(name, value))
}

// appendHeader appends the secrets in the value of a header: the value, the text after its first
// word, which may be an unknown scheme, and pairs such as those of a cookie.
func appendHeader(all []string, name, value string) []string {
	if !secrets.IsSecretName(name) && secrets.IsPlain(value) {
		return all
	}
	parts := secrets.FindHeader(name, value)
	all = appendParts(all, value, parts)
	if parts == nil || !secrets.IsSecretHeader(name) {
		return all
	}
	scheme, rest, ok := strings.Cut(value, " ")
	if ok && len(rest) >= 8 && !strings.Contains(rest, " ") && !strings.ContainsAny(scheme, "=;") {
		all = append(all, rest)
	}
	for pair := range strings.SplitSeq(value, ";") {
		all = appendParts(all, pair, secrets.Find("", pair))
	}
	return all
}

// expandedSecrets returns the secrets in a value that a reference to the variable inserted at path:
// the parts that are secret by their form, by the name of the variable or by the name of a header.
// The value of a key for which isSecretKey returns true is secret as a whole.
func expandedSecrets(path, variable, value string) []string {
	if secrets.IsShellVariable(variable) {
		return nil
	}
	all := appendVariable(nil, variable, value)
	if _, header, ok := strings.Cut(path, ".headers."); ok {
		all = appendHeader(all, header, value)
	} else if isSecretKey(path) {
		all = append(all, value)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// isSecretKey reports whether the key at path, other than a variable or header, has a secret value.
func isSecretKey(path string) bool {
	return path == "auth.oauth.introspection.client_secret" ||
		strings.HasPrefix(path, "otel.headers.") || path == "otel.endpoint" ||
		strings.HasSuffix(path, ".oauth.client_secret") ||
		strings.HasPrefix(path, "auth.tokens[") &&
			(strings.HasSuffix(path, "]") || strings.HasSuffix(path, ".token"))
}

// sourceSecrets returns the secrets in a value that a reference other than a variable inserted at
// path: the value, each of its lines, and the credentials in a header.
func sourceSecrets(path, value string) []string {
	all := []string{value}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= 8 {
			all = append(all, line)
		}
	}
	if _, header, ok := strings.Cut(path, ".headers."); ok {
		all = appendHeader(all, header, value)
	}
	return appendParts(all, value, secrets.Find("", value))
}

// inheritedSecrets returns the secrets in the variables that backends inherit.
func inheritedSecrets(c *Config, env func(string) (string, bool)) []string {
	var all []string
	for _, b := range c.Backends {
		for _, name := range b.InheritEnv {
			if value, ok := env(name); ok {
				all = appendVariable(all, name, value)
			}
		}
	}
	return all
}

// urlSecrets returns the secrets in a URL, as written and decoded: the parts that FindInServerURL
// finds, the password (if there is none: the user, unless isOrdinary), and the values in the query
// for which isOrdinary is false.
func urlSecrets(raw string) []string {
	u, err := url.Parse(raw)
	if raw == "" || err != nil {
		return nil
	}
	all := appendParts(nil, raw, secrets.FindInServerURL("", raw))
	if u.User != nil {
		user, password, _ := strings.Cut(u.User.String(), ":")
		plain, both := u.User.Password()
		all = append(all, password, plain)
		if !both && !isOrdinary(user) {
			all = append(all, user, u.User.Username())
		}
	}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(part, "=")
		plain, _ := url.QueryUnescape(value)
		if !isOrdinary(plain) {
			all = append(all, value, plain)
		}
	}
	return all
}

// isOrdinary reports whether a value without a secret name is too short or too common to be a
// secret.
func isOrdinary(value string) bool { return len(value) < 8 || secrets.IsPlain(value) }

// isTrivial reports whether a value is too short or too common to be a secret.
func isTrivial(value string) bool {
	if len(value) < 4 {
		return true
	}
	if len(value) == 4 && strings.Trim(value, "0123456789") == "" {
		return true
	}
	switch strings.ToLower(value) {
	case "true", "false", "none", "null", "auto", "debug", "info", "warn", "warning", "error",
		"trace",
		"text", "json", "stdio", "http", "https", "utf-8", "localhost", "production", "development",
		"test":
		return true
	}
	return false
}
