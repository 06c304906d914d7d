// Package logging is the gateway's logging: slog handlers that pass texts through a Mask, a Sink
// that never blocks a caller on a slow reader of stderr, and a rotated File that several gateways
// may append to at once. (Audit records reach their File as encoded lines.)
//
// It has no global logger and never calls slog.SetDefault: main builds one logger and passes it
// on. This logger also gets the messages that libraries write with package log
// (CaptureStandardLog).
//
//	log records ─ slog ─ Mask ┬ Sink ─ stderr
//	                          └ Ring   the latest lines, in memory
//	audit records, as lines ─ File   audit.jsonl, audit.jsonl.1 …
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Options configure the logger of New. The zero value writes text at level info and above,
// unmasked.
type Options struct {
	Level  slog.Leveler // nil = info; a *slog.LevelVar may change at any time
	Format string       // "json"; any other value is text
	Mask   *Mask        // nil = no masking
	// gets the records of level info and above, and the output of backends (see OutputContext),
	// whatever Level is; nil = none
	Ring *Ring
}

// New returns a logger that writes one whole line per record to w, with one Write call each.
// Write calls never overlap.
//
// The message and the values, including values in groups, are masked before they are encoded, so
// that JSON stays valid. Not masked are numbers, booleans, times and durations, the values of
// unmaskedKeys, and keys and group names, which the gateway determines. Attributes of With are
// encoded at once: a secret that is added to the Mask later is not masked in these attributes.
func New(w io.Writer, o Options) *slog.Logger {
	v := attrReplacer{mask: o.Mask, json: o.Format == "json"}
	h := &slog.HandlerOptions{Level: o.Level, ReplaceAttr: v.replace}
	var handler slog.Handler = slog.NewTextHandler(w, h)
	if v.json {
		handler = slog.NewJSONHandler(w, h)
	}
	if o.Ring != nil {
		handler = twoHandlers{handler, newRingHandler(o.Ring, v)}
	}
	return slog.New(handler)
}

// ParseLevel parses debug, info, warn or error, in upper or lower case. For any other name it
// returns LevelInfo and an error.
func ParseLevel(name string) (slog.Level, error) {
	switch strings.ToLower(name) {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return slog.LevelInfo, fmt.Errorf("log level %q: want debug, info, warn or error", name)
}
