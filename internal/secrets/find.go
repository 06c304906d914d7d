package secrets

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"mcpgateway/internal/lazy"
)

// A Secret is the secret text[From:To] within a text.
type Secret struct {
	From, To int
	// Name is the nearest name, as written: a flag, a variable, a header, a JSON member or a query
	// parameter; "password" or "user" in front of a host; "path" for a part of a path; otherwise
	// the name passed to Find.
	Name string
}

// Find returns the secret parts of text, in order and without overlaps. name is the name of the
// text, "" if it has none. Find parses JSON, JSON within JSON, URLs, assignments (KEY=value,
// Header: value, --flag=value), lists of assignments, and command lines.
func Find(name, text string) []Secret { return sweep(find(name, text), name, text) }

// FindArgument returns the secret parts of an argument of a program. flag is the flag in front
// of it, "" if there is none. It also finds the password in `-u user:password`. `-u 1000:1000`
// and `-u name:name`, a user and a group, contain no password.
func FindArgument(flag, text string) []Secret {
	user, password, ok := strings.Cut(text, ":")
	switch {
	case !ok || !slices.Contains(userFlags, flag) || strings.ContainsAny(text, "/ "):
		return Find(flag, text)
	case user == password || strings.Trim(password, digits) == "",
		strings.HasPrefix(password, "$"):
		return nil
	}
	return []Secret{{len(user) + 1, len(text), "password"}}
}

var userFlags = []string{"-u", "--user", "--proxy-user", "-U"}

// FindHeader returns the secret parts of the value of an HTTP header.
func FindHeader(name, value string) []Secret {
	return sweep(finder{depth: nestingLimit}.findHeader(name, value), name, value)
}

// sweep adds to parts the tokens of known issuers, in any context, that parts does not contain yet.
func sweep(parts []Secret, name, text string) []Secret {
	found := issuedInText().FindAllStringSubmatchIndex(text, -1)
	for _, m := range found {
		p := Secret{m[2], m[3], name}
		known := func(o Secret) bool { return o.From < p.To && p.From < o.To }
		if strings.ContainsAny(text[p.From:p.To], digits) && !slices.ContainsFunc(parts, known) {
			parts = append(parts, p)
		}
	}
	if found != nil {
		slices.SortFunc(parts, func(a, b Secret) int { return a.From - b.From })
	}
	return parts
}

func find(name, text string) []Secret { return finder{depth: nestingLimit}.find(name, text) }

// nestingLimit is the number of nested forms that are parsed. Deeper forms are treated as a whole.
const nestingLimit = 6

// A finder finds secrets. depth is the number of nested forms that it still parses.
type finder struct{ depth int }

func (f finder) next() finder { return finder{f.depth - 1} }

var (
	urlScheme  = lazy.Regexp(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	assignment = lazy.Regexp(`(?s)^(-{0,2}[A-Za-z_][\w.-]*)(=|: *)(.+)$`)
	userHost   = lazy.Regexp(`^([A-Za-z_][\w.-]*):([^\s@/:]+)@([\w.-]+)`)
	wordGap    = lazy.Regexp(`[\s"'` + "`" + `<>(){}\[\]|]+|\\[nrt"]|[;,&](?:\s|$)?`)
	uuid       = lazy.Regexp(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

var (
	// packages are the beginnings of references to packages and images, which may contain an @.
	packages = []string{
		"npm", "git", "github", "gitlab", "bitbucket", "gist", "docker", "file", "jsr", "pypi",
		"oci", "mailto", "workspace", "link",
	}
	// digests are the last words of names of digests.
	digests = []string{
		"sha", "sha1", "sha256", "commit", "rev", "revision", "digest", "checksum", "ref",
		"version", "hash", "etag",
	}
	// logins are the last words of names whose value is a user and password: -u user:password.
	logins = []string{"u", "user", "login", "userpass", "userpwd"}
	// authKinds are values of AUTH that denote a method.
	authKinds = []string{
		"basic", "bearer", "digest", "oauth", "oauth2", "oidc", "saml", "jwt", "iam", "api-key",
		"api_key", "apikey", "token", "anonymous", "default", "required", "optional", "enabled",
		"disabled", "auto", "browser", "device",
	}
	userPassword = lazy.Regexp(`^[^\s:/]+:([^\s/]*[^\s\d/][^\s/]*)$`)
	innerPair    = lazy.Regexp(`(?s)[^\w.-]([A-Za-z_][\w.-]*)=(\S+)$`)
)

// isUUID reports whether text is a UUID. LooksSecret does not report a UUID; in the path of a
// server's URL it often is a secret.
func isUUID(text string) bool { return uuid().MatchString(text) }

func (f finder) find(name, text string) []Secret {
	trimmed := strings.TrimSpace(text)
	at := strings.Index(text, trimmed)
	if trimmed == "" {
		return nil
	}
	quoted := len(trimmed) > 2 && strings.IndexByte(trimmed[1:], trimmed[0]) == len(trimmed)-2
	if q := trimmed[0]; quoted && (q == '"' || q == '\'') {
		return shift(f.find(name, trimmed[1:len(trimmed)-1]), at+1)
	}
	return shift(f.findTrimmed(name, trimmed), at)
}

func (f finder) findTrimmed(name, text string) []Secret {
	parts := splitName(name)
	if IsSecretName(name) {
		last := parts[len(parts)-1]
		isKind := last == "auth" && slices.Contains(authKinds, strings.ToLower(text))
		if !isHarmless(text) && !isKind {
			return []Secret{{len(text) - len(AfterScheme(text)), len(text), name}}
		}
		name = ""
	}
	if f.depth == 0 {
		if LooksSecret(text) || strings.ContainsAny(text, "=:{") {
			return []Secret{{0, len(text), name}}
		}
		return nil
	}
	headers := slices.Contains(parts, "headers") ||
		len(parts) > 0 && parts[len(parts)-1] == "header"
	m, login := assignment().FindStringSubmatchIndex(text), userHost().FindStringSubmatchIndex(text)
	switch {
	case (text[0] == '{' || text[0] == '[') && json.Valid([]byte(text)):
		return f.findInJSON(headers, text)
	case text[0] == '"' && json.Valid([]byte(text)):
		if plain, _ := unquote(text); f.next().find(name, plain) != nil {
			return []Secret{{1, len(text) - 1, name}}
		}
		return nil
	case urlScheme().MatchString(text) && !strings.ContainsAny(text, " \t\n"):
		return f.findInURL(text)
	case AfterScheme(text) != text && LooksSecret(text):
		return []Secret{{len(text) - len(AfterScheme(text)), len(text), name}}
	case name == "-c" && strings.ContainsAny(text, " \t\n"): // sh -c
		return f.findInWords(name, text)
	case login != nil && !slices.Contains(packages, text[:login[3]]) &&
		!digest().MatchString(text[login[6]:]):
		return []Secret{{login[4], login[5], "password"}}
	case len(parts) > 0 && slices.Contains(logins, parts[len(parts)-1]) &&
		userPassword().MatchString(text):
		at := userPassword().FindStringSubmatchIndex(text)
		return []Secret{{at[2], at[3], "password"}}
	case m != nil && !strings.HasPrefix(text[m[6]:], "//"):
		inner := f.next().find
		if headers || isHeaderFlag(name) {
			inner = f.next().findHeader
		}
		key := text[m[2]:m[3]]
		// docker run -eKEY=value
		if strings.HasPrefix(key, "-e") && len(key) > 2 && isUpper(key[2]) {
			key = key[2:]
		}
		return shift(inner(key, text[m[6]:]), m[6])
	case LooksSecret(text) && !isDigestOf(name, text):
		return []Secret{{0, len(text), name}}
	}
	return f.findInWords(name, text)
}

// findHeader finds the secrets in the value of a header: the whole value without its scheme, unless
// the header is known to contain no secret.
func (f finder) findHeader(name, value string) []Secret {
	rest := AfterScheme(value)
	if !IsSecretHeader(name) {
		return f.find(name, value)
	}
	if isHarmless(strings.TrimSpace(value)) || rest == "" ||
		number().MatchString(value) && !IsSecretName(name) {
		return f.find("", value)
	}
	return []Secret{{len(value) - len(rest), len(value), name}}
}

func isHeaderFlag(name string) bool {
	return name == "-H" ||
		strings.HasPrefix(name, "-") && strings.HasSuffix(strings.ToLower(name), "header")
}

// isDigestOf reports whether text is hexadecimal and name is the name of a digest: COMMIT_SHA.
func isDigestOf(name, text string) bool {
	parts := splitName(name)
	if len(parts) == 0 || strings.Trim(text, "0123456789abcdefABCDEF") != "" {
		return false
	}
	return slices.Contains(digests, parts[len(parts)-1])
}

// findInWords finds the secrets in a text of several words, such as a command line or a list of
// assignments.
func (f finder) findInWords(name, text string) []Secret {
	gaps := wordGap().FindAllStringIndex(text, -1)
	if m := innerPair().FindStringSubmatchIndex(text); gaps == nil && m != nil {
		return shift(f.next().find(text[m[2]:m[3]], text[m[4]:]), m[4])
	}
	if gaps == nil {
		return nil
	}
	var all []Secret
	from := 0
	before, last := "", "" // the name for the next word; the last word
	for _, g := range append(gaps, []int{len(text), len(text)}) {
		word := text[from:g[0]]
		start := from
		from = g[1]
		if word == "" {
			continue
		}
		label := strings.TrimRight(word, ":=")
		if label == "" { // {'Authorization': 'Bearer x'}
			label = last
		}
		last = word
		switch {
		case before != "" && AfterScheme(word+" x") != word+" x":
			continue // Authorization: Bearer, followed by the token
		case before != "" && !strings.HasPrefix(word, "-"):
			all = append(all, shift(f.next().find(before, word), start)...)
			before = ""
		case (label != word || strings.HasPrefix(word, "-")) &&
			!strings.ContainsAny(label, "=:") && IsSecretName(label):
			before = label
		case AfterScheme(word+" x") != word+" x":
			before = ""
			if rest := text[from:]; isToken(rest) {
				before = "token"
			}
		default:
			before = ""
			all = append(all, shift(f.next().find(wordName(name, word), word), start)...)
		}
	}
	return all
}

// wordName returns the name under which one word of a text is searched: the name of the text if the
// word is a digest under this name (see isDigestOf), otherwise "".
func wordName(name, word string) string {
	if isDigestOf(name, word) {
		return name
	}
	return ""
}

// isToken reports whether text begins with a credential that may follow Bearer or Basic.
func isToken(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	word = strings.Trim(word, "\"'`,;")
	return len(word) >= 8 && isCredential(word) &&
		!strings.Contains(strings.TrimRight(word, "="), "=")
}

// findInURL finds the secrets in a URL. It does not parse the URL with package net/url, because
// the URL may contain references to variables.
func (f finder) findInURL(text string) []Secret {
	var all []Secret
	at := strings.Index(text, "://") + len("://")
	end := at + lengthUntil(text[at:], "/?#")
	if strings.IndexByte(text[at:end], '@') < 0 {
		// A password may contain / or #. In this case the text after the : is not a port.
		_, port, ok := strings.Cut(text[at:end], ":")
		last := strings.LastIndexByte(text, '@')
		if ok && last > end && strings.Trim(port, digits) != "" {
			end = last + 1 + lengthUntil(text[last+1:], "/?#")
		}
	}
	if host := strings.LastIndexByte(text[at:end], '@'); host >= 0 {
		user, password, both := strings.Cut(text[at:at+host], ":")
		if LooksSecret(user) || password == "x-oauth-basic" ||
			!both && len(user) >= 12 && strings.ContainsAny(user, digits) {
			all = append(all, Secret{at, at + len(user), "user"})
		}
		if both && password != "" && password != "x-oauth-basic" {
			all = append(all, Secret{at + len(user) + 1, at + host, "password"})
		}
	}
	// jdbc:sqlserver://host;password=x
	if semicolon := strings.IndexByte(text[at:end], ';'); semicolon >= 0 {
		all = append(all, shift(f.next().findInWords("", text[at+semicolon+1:]), at+semicolon+1)...)
		return all
	}
	pathEnd := end + lengthUntil(text[end:], "?#")
	for before := ""; end < pathEnd; {
		end++
		next := end + lengthUntil(text[end:pathEnd], "/")
		segment := text[end:next]
		switch {
		case LooksSecret(segment),
			IsSecretName(before) && len(segment) >= 8 && strings.ContainsAny(segment, digits):
			all = append(all, Secret{end, next, "path"})
		case strings.ContainsAny(segment, "=:"):
			all = append(all, shift(f.next().find("", segment), end)...)
		}
		before, end = segment, next
	}
	for at = pathEnd; at < len(text); {
		at++ // ?, #, & or ;
		next := at + lengthUntil(text[at:], "&;#")
		pair := text[at:next]
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			key, value = "", pair
		}
		all = append(all, shift(f.findInQuery(key, value), next-len(value))...)
		at = next
	}
	return all
}

// findInQuery finds the secrets in the value of a query parameter, which may be escaped.
func (f finder) findInQuery(key, value string) []Secret {
	found := f.next().find(key, value)
	if found != nil || !strings.Contains(value, "%") {
		return found
	}
	if plain, err := url.QueryUnescape(value); err == nil && f.next().find(key, plain) != nil {
		return []Secret{{0, len(value), key}}
	}
	return nil
}

// findInJSON finds the secret members of a JSON text. headers is true if the text is an object of
// HTTP headers.
func (f finder) findInJSON(headers bool, text string) []Secret {
	var all []Secret
	walkJSON([]byte(text), IsSecretName, func(path []string, from, to int) {
		name := ""
		if len(path) > 0 {
			name = path[len(path)-1]
		}
		inner := f.next().find
		inHeaders := headers && len(path) == 1 ||
			len(path) > 1 && strings.HasSuffix(strings.ToLower(path[len(path)-2]), "headers")
		if inHeaders {
			inner = f.next().findHeader
		}
		value := text[from:to]
		switch plain, isText := unquote(value); {
		case !isText:
			if IsSecretName(name) && !isHarmless(value) {
				all = append(all, Secret{from, to, name})
			}
		case plain == value[1:len(value)-1]:
			all = append(all, shift(inner(name, plain), from+1)...)
		default:
			if inside := inner(name, plain); inside != nil {
				all = append(all, Secret{from + 1, to - 1, inside[0].Name})
			}
		}
	})
	return all
}

func unquote(value string) (text string, ok bool) {
	if value == "" || value[0] != '"' || json.Unmarshal([]byte(value), &text) != nil {
		return "", false
	}
	return text, true
}

func shift(parts []Secret, by int) []Secret {
	for i := range parts {
		parts[i].From += by
		parts[i].To += by
	}
	return parts
}

func lengthUntil(s, ends string) int {
	if i := strings.IndexAny(s, ends); i >= 0 {
		return i
	}
	return len(s)
}
