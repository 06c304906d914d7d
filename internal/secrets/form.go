package secrets

import (
	"math"
	"slices"
	"strings"

	"mcpgateway/internal/lazy"
)

var (
	// issued matches tokens with a prefix that their issuer uses only for tokens.
	issued = lazy.Regexp(`^(?:` + prefixes + `)[\w.~+/=:-]{8,}$`)
	// issuedInText matches a token of issued after a character that ends a word.
	issuedInText = lazy.Regexp(`(?:^|[^A-Za-z0-9_.-])((?:` + prefixes + `)[\w.~+/=:-]{8,}` +
		`|(?:AKIA|ASIA)[A-Z0-9]{12,}|(?:npm|hf|gsk|ntn|pcsk)_\w{16,})`)
	// issuedAmbiguous matches tokens with a prefix that ordinary words may also have. Such a token
	// must contain a digit or both cases.
	issuedAmbiguous = lazy.Regexp(`^(?:npm_|hf_|pat[-_A-Z0-9]|secret_|re_|key-|token[-_]|tok[-_]|` +
		`e2b_|BSA|EAA|dapi|dvc_|LTAI|pk_|rk_|fc-|rnd_|ops_|ph[cx]_|vcp_|sqp_|sgp_|glc_|ntn_|` +
		`gsk_|jina_)[\w.~+/=-]{8,}$`)
	awsKey   = lazy.Regexp(`^(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}$`)
	telegram = lazy.Regexp(`^\d{6,12}:[\w-]{30,}$`)
	inURL    = lazy.Regexp(`^[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]*:[^/?#\s]+@`)
	dense    = lazy.Regexp(`^[\w+/=.~-]{16,}$`)
	digest   = lazy.Regexp(`^sha(?:1|256|384|512)[-:]`)
	pem      = lazy.Regexp(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY|-----BEGIN PGP PRIVATE|` +
		`-----BEGIN OPENSSH`)
)

const prefixes = `gh[pousr]_|github_pat_|gl[a-z]{2,5}-|sk[-_]|[rp]k_(?:live|test)_|xox[a-z]-|` +
	`xapp-|AIza|ya29\.|` +
	`GOCSPX-|1//0|eyJ|pypi-|do[opr]_v1_|SG\.|lin_(?:api|oauth)_|figd_|tvly-|shp[a-z]{2}_|` +
	`r8_|xai-|` +
	`pplx-|sbp_|nvapi-|whsec_|dckr_pat_|ATATT|ATCTT|NRAK-|AGE-SECRET-KEY-|hv[bsr]\.|gls[a-z]_|` +
	`sntry[su]_|pcsk_|lsv2_|apify_api_|PMAK-|xkeysib-|pscale_[a-z]+_|ctx7sk|CCIPAT_|secret-token:`

// LooksSecret reports whether text is a secret by its form: it begins like the tokens of a known
// issuer or like the value of an Authorization header, is a URL with a password, contains a private
// key, or is a long random word. Text of fewer than 8 characters is not a secret, and neither is a
// UUID, because most UUIDs are identifiers. A hexadecimal digest counts as a secret, because many
// tokens look like digests, unless it begins with the name of its algorithm.
func LooksSecret(text string) bool {
	text = strings.TrimSpace(text)
	if len(text) < 8 {
		return false
	}
	if rest := AfterScheme(text); rest != text {
		return isCredential(rest)
	}
	return hasIssuer(text) || inURL().MatchString(text) || pem().MatchString(text) ||
		!IsPlain(text) && looksRandom(text)
}

// IsIssuedToken reports whether text begins like the tokens of a known issuer.
func IsIssuedToken(text string) bool { return hasIssuer(text) }

func hasIssuer(text string) bool {
	mixed := strings.ContainsAny(text, digits) || bothCases(text)
	return issued().MatchString(text) || mixed && issuedAmbiguous().MatchString(text) ||
		awsKey().MatchString(text) || telegram().MatchString(text)
}

// AfterScheme returns the credentials of an Authorization header's value, or the whole value if it
// does not begin with a scheme.
func AfterScheme(value string) string {
	for _, scheme := range [...]string{
		"Bearer ", "Basic ", "Token ", "ApiKey ", "Bot ", "Digest ", "Negotiate ", "Key ",
	} {
		if n := len(scheme); len(value) > n && strings.EqualFold(value[:n], scheme) {
			return strings.TrimLeft(value[n:], " ")
		}
	}
	return value
}

var (
	// word matches a word of prose, which may begin with a capital.
	word = lazy.Regexp(`^[A-Za-z]?[a-z]{0,18}[.:!?]?$`)
	// placeholder matches a word or the name of a variable in capitals, and a reference to a
	// variable.
	placeholder = lazy.Regexp(`^(?:[A-Z]{2,19}|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|` +
		`[$%][A-Za-z_][A-Za-z0-9_]*%?|\$)[.:!?]?$`)
)

// IsWord reports whether text, after the name of a header or an authorization scheme, is a word of
// prose or a placeholder and not a credential.
func IsWord(text string) bool { return word().MatchString(text) || IsPlaceholder(text) }

// IsPlaceholder reports whether text is a placeholder for a credential: TOKEN, DOCS_TOKEN, $TOKEN,
// or the $ in front of {TOKEN}.
func IsPlaceholder(text string) bool {
	return len(text) < 40 && placeholder().MatchString(text) && !hasIssuer(text)
}

// isCredential reports whether text, after a scheme, is a credential and not prose, as in
// "Basic authentication".
func isCredential(text string) bool {
	if strings.ContainsAny(text, " \t") {
		return false
	}
	return len(text) < 8 || strings.Trim(text, lower) != "" || len(text) >= 20 || looksRandom(text)
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

func bothCases(text string) bool {
	return strings.ContainsAny(text, lower) && strings.ContainsAny(text, upper)
}

// looksRandom reports whether text is one long random word.
func looksRandom(text string) bool {
	if !dense().MatchString(text) || strings.HasPrefix(text, "-") ||
		digest().MatchString(text) || filePath().MatchString(text) {
		return false
	}
	pieces := strings.FieldsFunc(text, func(c rune) bool {
		return strings.ContainsRune("/._-~", c)
	})
	joined := strings.Join(pieces, "")
	mixed := bothCases(text) && strings.ContainsAny(text, digits)
	if len(text) >= 32 && mixed && entropy(text) >= 4 && kindChanges(joined) >= len(text)/5 {
		return true
	}
	return slices.ContainsFunc(pieces, func(piece string) bool {
		switch {
		case len(piece) < 16,
			!strings.ContainsAny(piece, digits) && kindChanges(piece) < len(piece)/2:
			return false
		case strings.Trim(piece, digits) == "":
			return false
		case len(piece) < 20:
			return entropy(piece) >= 3 && kindChanges(piece) >= len(piece)/3
		}
		return entropy(piece) >= 3
	})
}

// kindChanges counts the places where the kind of the characters changes between lower case, upper
// case, digits and others. A capital before small letters begins a word and counts once.
func kindChanges(text string) int {
	n, before := 0, byte(0)
	for i := range len(text) {
		kind := byte('.')
		switch c := text[i]; {
		case 'a' <= c && c <= 'z':
			kind = 'a'
		case isUpper(c):
			kind = 'A'
		case '0' <= c && c <= '9':
			kind = '0'
		}
		if before != 0 && kind != before && !(before == 'A' && kind == 'a') {
			n++
		}
		before = kind
	}
	return n
}

// entropy returns the Shannon entropy of s in bits per byte.
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
