package config

import (
	"math"
	"regexp"
	"slices"
	"strings"
)

// isSecret tells whether a value is to be left behind, by its name or by its
// own looks. What refers to a variable is left as it is. A mistake here costs a
// variable; one the other way would copy a secret into another file.
func isSecret(name, value string) bool {
	if value == "" || refersTo(value) != nil {
		return false
	}
	if name == "PWD" && strings.ContainsAny(value, `/\`) { // where the shell is, as it says itself
		return false
	}
	return secretName(name) && !harmless(value) || secretLooks(value)
}

var (
	wordEnd     = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	secretWords = []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "AUTHORIZATION", "COOKIE", "PASSCODE", "PWD"}
	wholeWords  = []string{"AUTH", "PASS", "PIN", "PAT", "BEARER", "DSN", "CRED", "CREDS", "DBPASS"}
	// what a secret's name does not end with: TOKEN_URL, KEY_FILE, AUTH_TYPE
	otherWords = []string{"FILE", "PATH", "DIR", "URL", "URI", "TYPE", "METHOD", "MODE", "LIMIT", "COUNT", "NAME", "ENABLED", "TIMEOUT", "HOST", "PORT", "VAR", "TTL"}
)

func secretName(name string) bool {
	words := strings.FieldsFunc(strings.ToUpper(wordEnd.ReplaceAllString(name, "${1}_$2")), func(c rune) bool {
		return (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
	if len(words) == 0 || slices.Contains(otherWords, words[len(words)-1]) {
		return false
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(wholeWords, word) ||
			slices.ContainsFunc(secretWords, func(s string) bool { return strings.HasSuffix(word, s) })
	})
}

var harmlessText = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|none|https?://[^@?]*|(/home|/Users|/root|/etc|/var|/opt|/run|~|\.\.?)/.*|[A-Z]:\\.*)$`)

// harmless tells whether a value is none in spite of its name: a switch, a
// file, an address.
func harmless(value string) bool { return harmlessText.MatchString(value) }

var (
	knownSecret = regexp.MustCompile(`^(?:gh[pousr]_|github_pat_|glpat-|sk[-_]|[rp]k_|xox[a-z]-|xapp-|AKIA|ASIA|AIza|ya29\.|eyJ|npm_|hf_|pypi-|dop_v1_|SG\.|lin_api_|ntn_|secret_|figd_|tvly-|shpat_|pat[A-Z0-9])[\w.~+/=-]{8,}$`)
	scheme      = regexp.MustCompile(`^(?i:bearer|basic) +\S`)
	inURL       = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^/?#@]*:[^/?#@]+@`)
	tokenText   = regexp.MustCompile(`^[\w+/=.~-]{20,}$`)
)

// secretLooks tells whether a value gives itself away: by a prefix that issuers
// of tokens use, a password in a URL, or by being long and without rhyme.
func secretLooks(value string) bool {
	switch {
	case knownSecret.MatchString(value), scheme.MatchString(value), inURL.MatchString(value):
		return true
	case strings.Contains(value, "-----BEGIN "):
		return true
	case !tokenText.MatchString(value) || strings.HasPrefix(value, "-") || harmless(value) || strings.HasPrefix(value, "/"):
		return false
	}
	if len(value) >= 32 && mixed(value, "abcdefghijklmnopqrstuvwxyz") && mixed(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && mixed(value, "0123456789") && entropy(value) >= 4 {
		return true
	}
	longest := slices.MaxFunc(strings.FieldsFunc(value+"x", func(c rune) bool { return strings.ContainsRune("/._-~", c) }),
		func(a, b string) int { return len(a) - len(b) })
	return len(longest) >= 20 && mixed(longest, "0123456789") && strings.Trim(longest, "0123456789") != "" && entropy(longest) >= 3
}

func mixed(value, chars string) bool { return strings.ContainsAny(value, chars) }

// entropy is Shannon's, in bits per byte.
func entropy(s string) float64 {
	var counts [256]float64
	for i := range len(s) {
		counts[s[i]]++
	}
	bits := 0.0
	for _, n := range counts {
		if n > 0 {
			p := n / float64(len(s))
			bits -= p * math.Log2(p)
		}
	}
	return bits
}
