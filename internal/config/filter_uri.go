package config

import (
	"strings"
	"unicode"
)

// spellings are the normalized spellings of a URI: without percent-encoding, with / in place of
// \, and without the segments . and .. in its path.
type spellings struct {
	// equivalent are the spellings for a program that reads the URI according to RFC 3986 or the
	// WHATWG URL standard, or as a path.
	equivalent []string
	// lenient are the spellings for a program that also drops repeated slashes, a trailing slash,
	// the user, a dot after the host, or the host of a file URI.
	lenient []string
}

// spellingsOf returns the normalized spellings of a URI. ok is false in these cases:
//   - the URI contains control characters, or begins or ends with a space: only some programs drop
//     these characters;
//   - the URI is a web address whose host is empty, or contains non-ASCII characters or a percent
//     sign;
//   - the URI contains repeated slashes and .. segments that together lead to different resources.
func spellingsOf(uri string) (s spellings, ok bool) {
	if strings.ContainsFunc(uri, unicode.IsControl) || strings.TrimSpace(uri) != uri {
		return s, false
	}
	scheme, rest, found := strings.Cut(uri, ":")
	if !found {
		scheme, rest = "", uri
	} else {
		scheme = strings.ToLower(scheme) + ":"
	}
	path, query := rest, ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		path, query = rest[:i], percentDecode(rest[i:])
	}
	authority, path := splitAuthority(normalizeSlashes(path))
	if port, web := webPorts[scheme]; web {
		if authority, path = webAuthority(authority+path, port); authority == "" {
			return s, false
		}
		if path == "" {
			s.lenient = append(s.lenient, scheme+authority+"/"+query)
		}
	}
	file := scheme == "file:"
	if file && (authority == "" || strings.EqualFold(authority, "//localhost")) {
		authority = "//"
	}
	s.equivalent = append(s.equivalent, scheme+authority+removeDotSegments(path)+query)
	if query != "" { // for a program that treats the whole text as a path
		s.equivalent = append(s.equivalent,
			scheme+authority+removeDotSegments(path+normalizeSlashes(query)))
	}
	host := strings.TrimSuffix(authority, ".")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = "//" + host[i+1:]
	}
	if file {
		host, path = "//", withDriveColon(path)
	}
	collapsed := removeDotSegments(collapseSlashes(path))
	if collapsed != collapseSlashes(removeDotSegments(path)) {
		return s, false // .. after // leads to a different path than after /
	}
	path = collapsed
	for _, path := range []string{path, strings.TrimSuffix(path, "/")} {
		s.lenient = append(s.lenient, scheme+authority+path+query, scheme+host+path+query)
	}
	return s, true
}

// withDriveColon returns the path of a file URI with a slash before and a colon after a drive
// letter.
func withDriveColon(path string) string {
	rest := strings.TrimPrefix(path, "/")
	if len(rest) < 2 || rest[1] != ':' && rest[1] != '|' ||
		!('a' <= rest[0]|0x20 && rest[0]|0x20 <= 'z') {
		return "/" + rest
	}
	return "/" + rest[:1] + ":" + removeDotSegments("/"+strings.TrimLeft(rest[2:], "/"))
}

// webPorts are the default ports, by scheme.
var webPorts = map[string]string{"http:": ":80", "https:": ":443", "ws:": ":80", "wss:": ":443",
	"ftp:": ":21"}

// webAuthority splits a web address into authority and path. It accepts any number of slashes
// before the host, and drops user, password, default port and a trailing dot of the host.
// authority is "" if the host cannot be compared with others.
func webAuthority(text, port string) (authority, path string) {
	text = strings.TrimLeft(text, "/")
	host := text
	if i := strings.IndexByte(text, '/'); i >= 0 {
		host, path = text[:i], text[i:]
	}
	host = strings.ToLower(host[strings.LastIndexByte(host, '@')+1:])
	host = strings.TrimSuffix(strings.TrimSuffix(host, port), ":")
	host = strings.TrimSuffix(host, ".")
	isOdd := func(r rune) bool { return r > unicode.MaxASCII || r == '%' }
	if host == "" || strings.ContainsFunc(host, isOdd) {
		return "", ""
	}
	return "//" + host, path
}

// splitAuthority splits off the authority, including the // before it.
func splitAuthority(text string) (authority, path string) {
	after, ok := strings.CutPrefix(text, "//")
	if !ok {
		return "", text
	}
	if i := strings.IndexByte(after, '/'); i >= 0 {
		return "//" + after[:i], after[i:]
	}
	return text, ""
}

// normalizeSlashes removes the layers of percent-encoding, maxEncodings at most, and replaces \ by
// /.
func normalizeSlashes(text string) string {
	for range maxEncodings {
		plain := percentDecode(text)
		if plain == text {
			break
		}
		text = plain
	}
	return strings.ReplaceAll(text, `\`, "/")
}

// maxEncodings bounds the layers of percent-encoding that are removed.
const maxEncodings = 4

func collapseSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// removeDotSegments removes the segments . and .. of a path, like RFC 3986 section 5.2.4.
func removeDotSegments(path string) string {
	if !strings.Contains(path, ".") {
		return path
	}
	segments := strings.Split(path, "/")
	kept := segments[:0]
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".":
			if last {
				kept = append(kept, "")
			}
		case "..":
			if len(kept) > 1 || len(kept) == 1 && kept[0] != "" {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "")
			}
		default:
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, "/")
}

// percentDecode removes one layer of percent-encoding. A % without two hexadecimal digits is
// kept.
func percentDecode(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, low := hexDigit(text[i+1]), hexDigit(text[i+2])
			if high >= 0 && low >= 0 {
				b = append(b, byte(high<<4|low))
				i += 2
				continue
			}
		}
		b = append(b, text[i])
	}
	return string(b)
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// normalizeGlob removes one layer of percent-encoding from a glob. If the glob is a web address
// whose host contains no special characters, it also removes what webAuthority drops. A decoded
// special character matches only itself.
func normalizeGlob(glob string) string {
	glob = percentDecodeGlob(glob)
	scheme, rest, _ := strings.Cut(glob, ":")
	scheme = strings.ToLower(scheme) + ":"
	port, web := webPorts[scheme]
	host, _, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
	if !web || strings.ContainsAny(host, `*?[\`) {
		return glob
	}
	authority, path := webAuthority(rest, port)
	if authority == "" {
		return glob
	}
	return scheme + authority + path
}

func percentDecodeGlob(glob string) string {
	if !strings.Contains(glob, "%") {
		return glob
	}
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		one := percentDecode(glob[i:min(i+3, len(glob))])
		if glob[i] != '%' || len(one) != 1 || i+2 >= len(glob) {
			b.WriteByte(glob[i])
			continue
		}
		if strings.Contains(`*?[]\`, one) {
			b.WriteByte('\\')
		}
		b.WriteString(one)
		i += 2
	}
	return b.String()
}
