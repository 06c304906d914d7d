package config

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"mcpgateway/internal/secrets"
)

// Secrets returns the values that must not appear in a log, the longest first: tokens, and what
// is secret by its name or form in the environment, headers, arguments and URLs of the backends.
// So is what people do not read (secrets.IsOpaque) in a variable. Addresses, numbers, paths and words
// of an ordinary variable are not; neither are values
// that the log needs to be readable: "true", the address of the gateway, the names, commands and
// hosts of backends.
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
	}
	all = slices.Concat(all, c.Expanded)
	public := publicTexts(c)
	all = slices.DeleteFunc(all, func(value string) bool {
		shown := func(text string) bool { return strings.Contains(text, value) }
		return !secrets.LooksSecret(value) && slices.ContainsFunc(public, shown)
	})
	all = slices.DeleteFunc(append(all, c.Auth.Tokens...), isTrivial)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return slices.Compact(all)
}

// argumentSecrets returns what is secret in an argument by its form, or by the flag before it.
func argumentSecrets(args []string, i int) []secrets.Part {
	flag := ""
	if i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.HasPrefix(args[i], "-") {
		flag = args[i-1]
	}
	return secrets.FindArgument(flag, args[i])
}

// HideArguments returns the arguments of a program with *** for what is secret in them. Unlike a mask of Secrets it hides
// short values and common words, too, because it knows where they are.
func HideArguments(args []string) []string {
	hidden := slices.Clone(args)
	for i, arg := range args {
		text, end := "", 0
		for _, p := range argumentSecrets(args, i) { // in order, without overlaps
			text, end = text+arg[end:p.From]+"***", p.To
		}
		hidden[i] = text + arg[end:]
	}
	return hidden
}

// publicTexts returns what the log shows of the gateway and its backends in any case.
func publicTexts(c *Config) []string {
	all := []string{c.Listen, "localhost", "127.0.0.1", "[::1]", "0.0.0.0"}
	for _, b := range c.Backends {
		all = append(all, b.Name, b.Command, b.Cwd)
		if u, err := url.Parse(b.URL); err == nil {
			all = append(all, u.Host)
		}
	}
	return all
}

// appendParts adds the parts of text as they are and, if they are escaped, as they are meant.
func appendParts(all []string, text string, parts []secrets.Part) []string {
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

// appendVariable adds what is secret in the value of a variable, by its name or its form.
func appendVariable(all []string, name, value string) []string {
	if secrets.IsShellVariable(name) {
		return all
	}
	if secrets.IsOpaque(name, value) {
		all = append(all, value)
	}
	return appendParts(all, value, secrets.Find(name, value))
}

// appendHeader adds what is secret in the value of a header: the value, what follows its first
// word, because that may be a scheme that is not known, and pairs such as those of a cookie.
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

// expandedSecrets returns what is secret of the value that a reference to variable brought into
// the key path of an entry. The name of the variable and the key both count.
func expandedSecrets(path, variable, value string) []string {
	if secrets.IsShellVariable(variable) {
		return nil
	}
	all := appendVariable(nil, variable, value)
	if _, header, ok := strings.Cut(path, ".headers."); ok {
		all = appendHeader(all, header, value)
	} else if strings.HasPrefix(path, "auth.") {
		all = append(all, value)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// inheritedSecrets returns what is secret of the variables that backends inherit.
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

// urlSecrets returns what a URL holds of secrets, as written and as decoded: its password, or
// the user if there is none, and values of the query that are not plain.
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

// isOrdinary reports whether a value without the name of a secret is too short or too common to
// be one.
func isOrdinary(value string) bool { return len(value) < 8 || secrets.IsPlain(value) }

// isTrivial tells whether a value is too short or too common to be a secret.
func isTrivial(value string) bool {
	if len(value) < 4 {
		return true
	}
	if len(value) == 4 && strings.Trim(value, "0123456789") == "" {
		return true
	}
	switch strings.ToLower(value) {
	case "true", "false", "none", "null", "auto", "debug", "info", "warn", "warning", "error", "trace",
		"text", "json", "stdio", "http", "https", "utf-8", "localhost", "production", "development", "test":
		return true
	}
	return false
}
