package logging

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// backendKey is the key of the name of a backend.
const backendKey = "backend"

type outputContextKey struct{}

// OutputContext returns a context for the records of lines that backends write to stderr. A Ring
// keeps these records at any level.
func OutputContext() context.Context {
	return context.WithValue(context.Background(), outputContextKey{}, true)
}

// A ringHandler adds records to a Ring: those of level info and above, and those of lines that
// backends write to stderr.
type ringHandler struct {
	ring    *Ring
	text    slog.Handler // encodes the attributes, except backendKey, into ring.buffer
	values  attrReplacer
	backend string // from WithAttrs
	grouped bool   // WithGroup was called
}

func newRingHandler(r *Ring, v attrReplacer) ringHandler {
	v.json = false
	replace := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 {
			switch {
			case a.Key == slog.TimeKey, a.Key == slog.LevelKey, a.Key == slog.MessageKey:
				return slog.Attr{} // fields of a LogLine
			case isBackendName(a):
				return slog.Attr{}
			}
		}
		return v.replace(groups, a)
	}
	return ringHandler{ring: r, values: v, text: slog.NewTextHandler(&r.buffer,
		&slog.HandlerOptions{Level: slog.Level(-1000), ReplaceAttr: replace})}
}

// isBackendName reports whether an attribute is the name of one backend.
func isBackendName(a slog.Attr) bool {
	return a.Key == backendKey && a.Value.Kind() == slog.KindString &&
		!strings.Contains(a.Value.String(), ",")
}

// Enabled implements slog.Handler.
func (h ringHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || ctx.Value(outputContextKey{}) != nil
}

// Handle implements slog.Handler.
func (h ringHandler) Handle(ctx context.Context, r slog.Record) error {
	l := LogLine{Time: r.Time, Level: max(r.Level, slog.LevelDebug), Backend: h.backend}
	if !h.grouped {
		r.Attrs(func(a slog.Attr) bool {
			if isBackendName(a) {
				l.Backend = strings.Clone(a.Value.String())
			}
			return true
		})
	}
	l.Message = shortened(h.values.mask.String(r.Message))
	h.ring.encoding.Lock()
	err := h.text.Handle(ctx, r)
	attrs := h.ring.buffer.String()
	if h.ring.buffer.Reset(); h.ring.buffer.Cap() > 4*maxRingText {
		h.ring.buffer = bytes.Buffer{}
	}
	h.ring.encoding.Unlock()
	l.Attrs = shortened(strings.TrimSuffix(attrs, "\n"))
	h.ring.add(l)
	return err
}

// shortened returns a copy of at most maxRingText bytes.
func shortened(text string) string {
	if len(text) <= maxRingText {
		return strings.Clone(text)
	}
	end := maxRingText - len(truncationMark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + truncationMark
}

// WithAttrs implements slog.Handler.
func (h ringHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if !h.grouped {
		for _, a := range attrs {
			if isBackendName(a) {
				h.backend = a.Value.String()
			}
		}
	}
	h.text = h.text.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h ringHandler) WithGroup(name string) slog.Handler {
	h.text, h.grouped = h.text.WithGroup(name), name != "" || h.grouped
	return h
}

// A twoHandlers passes records to two handlers, to each those of its level.
type twoHandlers [2]slog.Handler

// Enabled implements slog.Handler.
func (t twoHandlers) Enabled(ctx context.Context, level slog.Level) bool {
	return t[0].Enabled(ctx, level) || t[1].Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (t twoHandlers) Handle(ctx context.Context, r slog.Record) (err error) {
	for _, h := range t {
		if h.Enabled(ctx, r.Level) {
			if failure := h.Handle(ctx, r); failure != nil {
				err = failure
			}
		}
	}
	return err
}

// WithAttrs implements slog.Handler.
func (t twoHandlers) WithAttrs(attrs []slog.Attr) slog.Handler {
	return twoHandlers{t[0].WithAttrs(attrs), t[1].WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (t twoHandlers) WithGroup(name string) slog.Handler {
	return twoHandlers{t[0].WithGroup(name), t[1].WithGroup(name)}
}
