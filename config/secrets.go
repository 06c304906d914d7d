package config

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// Secrets returns the values that must never appear in a log: tokens, the values
// of env and headers, user, password and query values of URLs, and what ${VAR}
// brought into a token or anywhere into a backend. The longest comes first, so
// that masking in this order leaves no remainder. Values too short or too common
// to be secrets are left out: masking "true" would only make logs unreadable.
func Secrets(c *Config) []string {
	all := slices.Concat(c.Expanded, c.Auth.Tokens)
	for _, b := range c.Backends {
		for _, value := range b.Env {
			all = append(all, value)
		}
		for name, value := range b.Headers {
			if strings.EqualFold(name, "Host") {
				continue
			}
			all = append(all, value, credentials(value))
		}
		all = append(all, urlSecrets(b.URL)...)
	}
	all = slices.DeleteFunc(all, isTrivial)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	return slices.Compact(all)
}

// credentials is what follows "Bearer " or "Basic " in a header; all of it if
// neither does.
func credentials(header string) string {
	scheme, rest, ok := strings.Cut(header, " ")
	if ok && (strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "Basic")) {
		return strings.TrimSpace(rest)
	}
	return header
}

// urlSecrets returns what a URL holds of secrets, as written and as decoded.
func urlSecrets(raw string) []string {
	u, err := url.Parse(raw)
	if raw == "" || err != nil {
		return nil
	}
	var all []string
	if u.User != nil {
		user, password, _ := strings.Cut(u.User.String(), ":")
		plain, _ := u.User.Password()
		all = append(all, user, u.User.Username(), password, plain)
	}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, _ := strings.Cut(part, "=")
		plain, _ := url.QueryUnescape(value)
		all = append(all, value, plain)
	}
	return all
}

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

// isPlain tells whether a variable is one that everybody's shell sets and that
// holds no secret: its value may appear in paths all over the log.
func isPlain(variable string) bool {
	switch variable {
	case "HOME", "USERPROFILE", "USER", "USERNAME", "LOGNAME", "PWD", "PATH", "SHELL", "LANG",
		"TMPDIR", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "HOSTNAME", "TERM":
		return true
	}
	return strings.HasPrefix(variable, "XDG_")
}
