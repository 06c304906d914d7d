package mcptest

import (
	"fmt"
	"strings"
	"time"
)

// A kind is what a line of a script is.
type kind uint8

const (
	remark  kind = iota // blank, or begins with #
	forth               // → towards the backends
	back                // ← towards the client
	pause               // wait 2s
	end                 // end: the client has sent its last
	hello               // hello [result]: a handshake, all of it
	listing             // listing RESULT: hello, and the answer to the tools/list that follows
	exit                // exit STATUS: the backend's process dies
	refuse              // refuse REASON: a dial fails
)

var words = map[string]kind{
	"→": forth, "←": back, "wait": pause, "end": end, "hello": hello, "listing": listing, "exit": exit, "refuse": refuse,
}

// A line is one line of a script.
type line struct {
	kind kind
	text string // what stands behind the first word; all of a remark
	time time.Duration
}

func (l line) String() string {
	for word, k := range words {
		if k == l.kind {
			return strings.TrimSpace(word + " " + l.text)
		}
	}
	return l.text
}

// parseScript reads a script in which the words given may stand.
func parseScript(text string, allowed ...kind) ([]line, error) {
	var all []line
	for raw := range strings.Lines(text) {
		raw = strings.TrimSuffix(raw, "\n")
		if raw == "" || raw[0] == '#' {
			all = append(all, line{text: raw})
			continue
		}
		word, rest, _ := strings.Cut(raw, " ")
		l := line{kind: words[word], text: rest}
		ok := false
		for _, k := range allowed {
			ok = ok || l.kind == k
		}
		if !ok {
			return nil, fmt.Errorf("not a line of this script: %s", raw)
		}
		if l.kind == pause {
			var err error
			if l.time, err = time.ParseDuration(rest); err != nil {
				return nil, err
			}
		}
		all = append(all, l)
	}
	return all, nil
}

func formatScript(all []line) string {
	var b strings.Builder
	for _, l := range all {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}

// parseConfig reads lines of key: value.
func parseConfig(text string) (map[string]string, error) {
	c := make(map[string]string)
	for raw := range strings.Lines(text) {
		raw = strings.TrimSpace(raw)
		if raw == "" || raw[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(raw, ":")
		if !ok {
			return nil, fmt.Errorf("not key: value: %s", raw)
		}
		c[key] = strings.TrimSpace(value)
	}
	return c, nil
}
