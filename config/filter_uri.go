package config

import "strings"

// plainURI returns the plain spelling of a URI: without percent-encoding, with / in the place of
// \, without the segments . and .. in its path, and with an empty authority for files of this
// machine. Short is the same with one / where several follow each other.
func plainURI(uri string) (plain, short string) {
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok {
		scheme, rest = "", uri
	} else {
		scheme += ":"
	}
	path, query := rest, ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		path, query = rest[:i], decoded(rest[i:])
	}
	path = strings.ReplaceAll(decoded(path), `\`, "/")
	authority := ""
	if after, ok := strings.CutPrefix(path, "//"); ok {
		authority, path = "//"+after, ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			authority, path = "//"+after[:i], after[i:]
		}
	}
	if strings.EqualFold(scheme, "file:") && (authority == "" || strings.EqualFold(authority, "//localhost")) {
		authority = "//"
	}
	plain = scheme + authority + withoutDots(path) + query
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return plain, scheme + authority + withoutDots(path) + query
}

// withoutDots removes the segments . and .. of a path, as RFC 3986 (5.2.4) does.
func withoutDots(path string) string {
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

// decoded returns text without percent-encoding. A % that encodes nothing stays.
func decoded(text string) string {
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

// plainGlob returns a glob without percent-encoding. What was encoded stands for itself.
func plainGlob(glob string) string {
	if !strings.Contains(glob, "%") {
		return glob
	}
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		one := decoded(glob[i:min(i+3, len(glob))])
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
