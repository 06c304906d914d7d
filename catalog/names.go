package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// fit makes name one that every client takes: letters, digits, _ and -, a
// letter or digit first, of limit bytes at most. A name that is one already
// stays as it is. What is cut off is made up for by a hash of tag, so that the
// result depends on nothing else and is the same at every start.
func fit(name, tag string, limit int) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			b.WriteRune(r)
		case b.Len() == 0: // not at the start
		case r == '-':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	switch s := b.String(); {
	case s == "":
		return hashed("tool", tag, limit)
	case len(s) > limit:
		return hashed(s, tag, limit)
	default:
		return s
	}
}

// hashed returns name, shortened as need be, with a hash of tag behind it.
func hashed(name, tag string, limit int) string {
	sum := sha256.Sum256([]byte(tag))
	tail := "_" + hex.EncodeToString(sum[:4])
	return name[:max(min(len(name), limit-len(tail)), 0)] + tail
}

// A namer gives out exposed names, each once.
type namer struct {
	Options
	taken map[string]bool
}

// name returns the name under which a backend's tool appears, "" if under none.
func (n *namer) name(backend, own string) string {
	tag := backend + "\x00" + own
	bare := fit(own, tag, n.NameLimit)
	prefixed := fit(backend+n.Separator+own, tag, n.NameLimit)
	wanted := []string{bare, prefixed}
	switch n.Prefix {
	case Always:
		wanted = wanted[1:]
	case Never:
		wanted = wanted[:1]
	}
	for _, name := range wanted {
		if n.take(name) {
			return name
		}
	}
	if n.Prefix == Never {
		return ""
	}
	for name := prefixed; ; tag += "\x00" {
		if name = hashed(prefixed, tag, n.NameLimit); n.take(name) {
			return name
		}
	}
}

func (n *namer) take(name string) bool {
	if n.taken[name] {
		return false
	}
	n.taken[name] = true
	return true
}
