// Package secrets recognizes secrets by the name of a value and by its form. The names are listed
// in secrets.go; the prefixes of tokens and the authorization schemes in form.go. The import of
// configurations, the descriptions of configurations and the audit journal use these lists. The log
// uses the names and prefixes in one way only: with them config.Secrets selects the values of the
// configuration that are masked in the log, wherever they appear.
//
// A value that is not in the configuration, such as a token in a line that a backend writes to
// stderr, is masked in the log only if package logging finds it by the text in front of it:
// findCredentials in logging/credentials.go has a short list for that. A new kind of secret must be
// added there to be masked in such a line, and here for everything else.
//
// The package reads text and has no state.
package secrets

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mcpgateway/internal/lazy"
)

// Redacted replaces a secret in a text.
const Redacted = "***"

// IsSecret reports whether value is a secret, by its name or by its form. Booleans, file paths and
// URLs without credentials are not secrets, even under the name of a secret. A number under such a
// name is a secret: PIN: 1234.
func IsSecret(name, value string) bool {
	return IsSecretName(name) && !isHarmless(value) || LooksSecret(value)
}

var (
	// secretParts are parts of names that denote a secret anywhere in a name.
	secretParts = []string{
		"password", "passwd", "passphrase", "passcode", "secret", "apikey", "accesskey",
		"privatekey", "authkey", "authorization", "cookie", "credential", "mnemonic",
	}
	// secretSuffixes denote a secret at the end of a word of a name: authtoken, MYSQLPWD,
	// openaikey.
	secretSuffixes = []string{"token", "pwd", "key"}
	// secretWords denote a secret as whole words of a name: DB_PASS, --pat.
	secretWords = []string{
		"auth", "pass", "pin", "pat", "bearer", "dsn", "cred", "creds", "jwt", "otp", "session",
		"signature", "tok", "pw", "dbpass", "userpass", "smtppass", "sshpass", "pgpass",
		"rootpass", "adminpass", "apitokens", "authtokens",
	}
	// notKeys are words that end with "key" and do not denote a key.
	notKeys = []string{"monkey", "turkey", "donkey", "hotkey", "whiskey", "hockey", "jockey"}
	// plurals denote secrets after one of the words in pluralOwners: API_KEYS, access_tokens. After
	// other words they denote a number: MAX_TOKENS.
	plurals      = []string{"keys", "tokens", "pats"}
	pluralOwners = []string{
		"api", "auth", "access", "bearer", "refresh", "private", "secret", "static", "id",
	}
	// harmlessEndings are the last words of names of settings that are related to a secret but
	// contain none: TOKEN_URL, KEY_FILE.
	harmlessEndings = []string{
		"file", "path", "dir", "url", "uri", "type", "method", "mode", "limit", "count", "name",
		"enabled", "disabled", "timeout", "host", "port", "var", "ttl", "length", "size",
		"expiry", "expires", "expiration", "interval", "version", "format", "algorithm", "alg",
		"provider", "endpoint", "domain", "realm", "audience", "issuer", "scope", "scopes",
		"required", "policy", "user", "username", "email", "region", "bindings", "binding",
		"budget", "env",
	}
)

// IsSecretName reports whether key is the name of a secret. key may be the name of an environment
// variable, a header, a flag, a query parameter or a JSON member, in any case and with any
// separators.
func IsSecretName(key string) bool {
	parts := splitName(key)
	if len(parts) == 0 {
		return false
	}
	last := parts[len(parts)-1]
	if slices.Contains(harmlessEndings, last) {
		return false
	}
	joined := strings.Join(parts, "")
	inName := func(word string) bool { return strings.Contains(joined, word) }
	if slices.ContainsFunc(secretParts, inName) {
		return true
	}
	for i, part := range parts {
		endsPart := func(end string) bool { return strings.HasSuffix(part, end) }
		switch {
		case slices.Contains(secretWords, part):
			return true
		case part == "key" && i > 0 && parts[i-1] == "public", slices.Contains(notKeys, part):
		case slices.ContainsFunc(secretSuffixes, endsPart):
			return true
		case slices.Contains(plurals, part) &&
			(len(parts) == 1 || i > 0 && slices.Contains(pluralOwners, parts[i-1])):
			return true
		}
	}
	return last == "private"
}

// splitName returns the words of a name in lower case: apiKey, API_KEY, --api-key and "Api Key" are
// all split into api and key.
func splitName(name string) []string {
	var parts []string
	var part []byte
	end := func() {
		if len(part) > 0 {
			parts = append(parts, string(part))
			part = part[:0]
		}
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			part = append(part, c)
		case 'A' <= c && c <= 'Z':
			afterLower := i > 0 && !isUpper(name[i-1])
			beforeLower := i > 0 && i+1 < len(name) && 'a' <= name[i+1] && name[i+1] <= 'z'
			if afterLower || beforeLower {
				end()
			}
			part = append(part, c|0x20)
		default:
			end()
		}
	}
	end()
	return parts
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// openHeaders are the last words of names of headers without secrets: X-Api-Version.
var openHeaders = []string{
	"version", "region", "toolsets", "tools", "readonly", "timeout", "locale", "language", "mode",
}

// IsSecretHeader reports whether the value of an HTTP header may be a secret. It is false only for
// headers that are known to contain none.
func IsSecretHeader(name string) bool {
	if IsSecretName(name) {
		return true
	}
	name = strings.ToLower(name)
	switch name {
	case "user-agent", "content-type", "content-language", "cache-control", "pragma", "host",
		"origin", "referer", "connection", "keep-alive", "te", "dnt", "from",
		"mcp-protocol-version":
		return false
	}
	if strings.HasPrefix(name, "accept") {
		return false
	}
	parts := splitName(name)
	return len(parts) == 0 || !slices.Contains(openHeaders, parts[len(parts)-1])
}

// IsPlain reports whether text is never a secret by itself, and too common to search for in other
// text: a boolean, a number, a duration or size, an IP address, a host name, host:port, a file
// path, a URL without credentials, or a single word of fewer than 8 letters.
func IsPlain(text string) bool {
	text = strings.TrimSpace(text)
	switch {
	case hasIssuer(text):
		return false
	case isHarmless(text), number().MatchString(text), isAddress(text):
		return true
	case strings.HasPrefix(text, "/") && !strings.ContainsAny(text, "+="),
		strings.HasPrefix(text, `\\`):
		return !looksRandom(strings.TrimPrefix(text, "/"))
	}
	if _, err := time.ParseDuration(text); err == nil {
		return true
	}
	isOther := func(c rune) bool { return !unicode.IsLetter(c) }
	return len(text) < 8 && strings.IndexFunc(text, isOther) < 0
}

var (
	switchValue = lazy.Regexp(`^(?i:|true|false|yes|no|on|off|none|null|nil|undefined)$`)
	// filePath matches a path that begins with a known folder, or a file with a short suffix.
	filePath = lazy.Regexp(`^(?:/?(?:[\w@. -]+/)+[\w@. -]*\.[A-Za-z][A-Za-z0-9]{0,4}` +
		`|(?:file://)?/(?:home|Users|root|etc|var|opt|run|usr|tmp|mnt|srv|dev|proc|bin|app|data|` +
		`workspaces?)(?:/.*)?` +
		`|(?:~|\.\.?)(?:[/\\].*)?|[A-Za-z]:[\\/].*|%[A-Z]+%\\.*)$`)
	number = lazy.Regexp(`^[-+]?(?:\d[\d_,]*)?\.?\d+(?:[eE][-+]?\d+)?\s?` +
		`(?:%|[kKMGT]i?[bB]?|[bB])?$`)
	hostName = lazy.Regexp(`^(?i:localhost|[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.[a-z]{2,24})$`)
)

// isHarmless reports whether text is not a secret even under the name of a secret.
func isHarmless(text string) bool {
	if switchValue().MatchString(text) || filePath().MatchString(text) {
		return true
	}
	scheme := urlScheme().FindString(text)
	// A part between slashes is not a URL, so that LooksSecret does not recurse.
	return scheme != "" && !strings.ContainsAny(text, "?@# \n") &&
		!slices.ContainsFunc(strings.Split(text[len(scheme):], "/"), LooksSecret)
}

func isAddress(text string) bool {
	if host, port, err := net.SplitHostPort(text); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil && port != "" {
			return false
		}
		text = host
		isOther := func(c rune) bool { return !unicode.IsLetter(c) && c != '-' && c != '_' }
		if strings.IndexFunc(text, isOther) < 0 {
			return true // redis:6379
		}
	}
	return net.ParseIP(strings.Trim(text, "[]")) != nil ||
		hostName().MatchString(text) && !looksRandom(text)
}
