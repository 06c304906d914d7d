package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
)

// attrReplacer brings attribute values into the form in which they are masked and written.
type attrReplacer struct {
	mask *Mask
	json bool
}

// timeFormat is the form of times in JSON: in UTC, with a fixed number of digits.
const timeFormat = "2006-01-02T15:04:05.000000Z"

// replace is a slog ReplaceAttr: slog calls it for the message and for every leaf of every group, with LogValuers
// resolved. A wrapping handler would have to walk groups and With itself, and would gain nothing.
func (v attrReplacer) replace(_ []string, a slog.Attr) slog.Attr {
	if unmaskedKeys[a.Key] {
		return a
	}
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); s != "" {
			a.Value = slog.StringValue(v.mask.String(s))
		}
	case slog.KindTime:
		if v.json {
			a.Value = slog.StringValue(a.Value.Time().UTC().Format(timeFormat))
		}
	case slog.KindDuration:
		if v.json { // as in text: 1.5s, no number of nanoseconds
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
	case slog.KindAny:
		a.Value = v.anyValue(a.Value.Any())
	}
	return a
}

// unmaskedKeys are the keys whose values are the gateway's words or names that the configuration has given. They are not masked.
// Names that servers have given are: they may hold what a server was given.
var unmaskedKeys = map[string]bool{
	"backend": true, "session": true, "outcome": true,
	"added": true, "removed": true, "changed": true, // backends, and keys of the configuration
}

// anyValue turns everything that has a text into that text. Bytes count as text: base64 would carry a secret past the mask.
func (v attrReplacer) anyValue(x any) slog.Value {
	switch t := x.(type) {
	case nil:
		return slog.AnyValue(x)
	case slog.Level:
		return slog.StringValue(t.String()) // a Level would be encoded by way of reflection
	case []byte:
		return v.maskedText(string(t))
	case error, fmt.Stringer:
		return v.maskedText(fmt.Sprint(t)) // Sprint survives nil pointers and panicking methods
	case json.RawMessage:
		if !v.json {
			return v.maskedText(string(t))
		}
	}
	if v.json {
		return v.jsonValue(x)
	}
	return v.maskedText(fmt.Sprintf("%+v", x))
}

func (v attrReplacer) maskedText(s string) slog.Value { return slog.StringValue(v.mask.String(s)) }

// jsonValue keeps JSON as JSON, unless a secret is in it: then it is written as masked text, since blotting out part of
// a JSON text might break it.
func (v attrReplacer) jsonValue(x any) slog.Value {
	raw, err := encode(x)
	if err != nil {
		return v.maskedText("!ERROR: " + err.Error())
	}
	if text := v.mask.String(string(raw)); text != string(raw) {
		return slog.StringValue(text)
	}
	return slog.AnyValue(json.RawMessage(raw))
}

// encode is json.Marshal without the HTML escapes, as slog writes JSON.
func encode(x any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(x)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
