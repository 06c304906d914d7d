package mcptest

import (
	"fmt"
	"strings"
	"time"
)

// A kind is what a line of a script is.
type kind uint8

const (
	comment          kind = iota // blank, or begins with #
	toBackend                    // → towards the backends
	toClient                     // ← towards the client
	wait                         // wait 2s
	clientEnd                    // end: the client has sent its last
	handshake                    // hello [result]: a handshake, all of it
	handshakeAndList             // listing RESULT: hello, and the answer to the tools/list that follows
	processExit                  // exit STATUS: the backend's process dies
	dialFailure                  // refuse REASON: a dial fails
)

var keywords = map[string]kind{
	"→": toBackend, "←": toClient, "wait": wait, "end": clientEnd, "hello": handshake, "listing": handshakeAndList, "exit": processExit, "refuse": dialFailure,
}

// A scriptLine is one line of a script.
type scriptLine struct {
	kind kind
	text string // what stands behind the first word; all of a remark
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

// parseScript reads a script in which the words given may stand.
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
			return nil, fmt.Errorf("not a line of this script: %s", raw)
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
