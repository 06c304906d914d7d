// Package logs is the gateway's own logging: slog handlers whose every value goes through a Mask, a Sink which never
// lets a slow reader of stderr hold up a caller, and a rotated File which several gateways may append to at once. (The
// audit record comes to its File as lines already.)
//
// It keeps no global logger and never calls slog.SetDefault: main builds one logger and hands it around. What libraries
// write with package log goes there, too (CaptureStandardLog).
//
//	records ─ slog ─ Mask ─ Sink ─ stderr
//	           lines of audit ─ File   audit.jsonl, audit.jsonl.1 …
package logging

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Options says how New's logger writes. The zero value writes text, from info upwards, unmasked.
type Options struct {
	Level  slog.Leveler // nil = info; a *slog.LevelVar may be turned while running
	Format string       // "json", or else text
	Mask   *Mask        // nil = nothing is secret
}

// New returns a logger that hands w one whole line per record, one Write call each, never two at a time.
//
// The message and every value but numbers, booleans, times and durations are masked before they are encoded, in groups,
// too, so that JSON stays JSON. Keys and group names are ours and are not. Attributes given to With are encoded at once:
// a secret added to the Mask later is not masked in them.
func New(w io.Writer, o Options) *slog.Logger {
	v := attrReplacer{mask: o.Mask, json: o.Format == "json"}
	h := &slog.HandlerOptions{Level: o.Level, ReplaceAttr: v.replace}
	if v.json {
		return slog.New(slog.NewJSONHandler(w, h))
	}
	return slog.New(slog.NewTextHandler(w, h))
}

// ParseLevel reads debug, info, warn or error, in either case.
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
