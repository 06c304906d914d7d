package mcptest

import (
	"fmt"
	"strings"
	"time"
)

// A kind is the kind of a script line.
type kind uint8

const (
	comment          kind = iota // blank, or begins with #
	toBackend                    // → towards the backends
	toClient                     // ← towards the client
	wait                         // wait 2s
	clientEnd                    // end: the client closes its sending side
	handshake                    // hello: a complete handshake of a client or a backend
	handshakeAndList             // listing RESULT: a handshake and the tools/list after it
	processExit                  // exit STATUS: the backend's process exits
	dialFailure                  // refuse REASON: a dial fails
)

var keywords = map[string]kind{
	"→": toBackend, "←": toClient, "wait": wait, "end": clientEnd, "hello": handshake,
	"listing": handshakeAndList, "exit": processExit, "refuse": dialFailure,
}

// A scriptLine is one line of a script.
type scriptLine struct {
	kind kind
	text string // the text after the keyword; the whole line of a comment
	time time.Duration
}

func (l scriptLine) String() string {
	for word, k := range keywords {
		if k == l.kind {
			return strings.TrimSpace(word + " " + l.text)
		}
	}
	return l.text
}

// parseScript parses a script that may contain the allowed kinds of lines.
func parseScript(text string, allowed ...kind) ([]scriptLine, error) {
	var all []scriptLine
	for raw := range strings.Lines(text) {
		raw = strings.TrimSuffix(raw, "\n")
		if raw == "" || raw[0] == '#' {
			all = append(all, scriptLine{text: raw})
			continue
		}
		word, rest, _ := strings.Cut(raw, " ")
		l := scriptLine{kind: keywords[word], text: rest}
		ok := false
		for _, k := range allowed {
			ok = ok || l.kind == k
		}
		if !ok {
			return nil, fmt.Errorf("line not allowed in this script: %s", raw)
		}
		if l.kind == wait {
			var err error
			if l.time, err = time.ParseDuration(rest); err != nil {
				return nil, err
			}
		}
		all = append(all, l)
	}
	return all, nil
}

func formatScript(all []scriptLine) string {
	var b strings.Builder
	for _, l := range all {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}

// parseConfig parses lines of the form "key: value".
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
