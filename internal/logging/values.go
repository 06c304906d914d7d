package logging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
)

// An attrReplacer masks attribute values and converts them to the form in which they are written.
type attrReplacer struct {
	mask *Mask
	json bool
}

// timeFormat is the format of times in JSON: UTC with a fixed number of digits.
const timeFormat = "2006-01-02T15:04:05.000000Z"

// replace is a ReplaceAttr of slog: slog calls it for the message and for every leaf of every
// group, with LogValuers resolved. A wrapping handler would have to process groups and the
// attributes of With itself, without an advantage.
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
		if v.json { // as in text: 1.5s, not a number of nanoseconds
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
	case slog.KindAny:
		a.Value = v.anyValue(a.Value.Any())
	}
	return a
}

// unmaskedKeys are the keys whose values are not masked: values from the gateway itself, and names
// in the configuration. Names from servers are masked, because they may contain secrets that the
// server received from the gateway.
var unmaskedKeys = map[string]bool{
	"backend": true, "session": true, "outcome": true,
	"added": true, "removed": true, "changed": true, // backends, and keys of the configuration
}

// anyValue converts errors, Stringers and bytes to masked text. Bytes count as text because
// base64 would hide a secret from the mask.
func (v attrReplacer) anyValue(x any) slog.Value {
	switch t := x.(type) {
	case nil:
		return slog.AnyValue(x)
	case slog.Level:
		return slog.StringValue(t.String()) // a Level would be encoded by reflection
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

// jsonValue encodes x as JSON. If the JSON contains a secret, the value is the masked JSON as a
// string, because replacing a part of JSON might make it invalid.
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

// encode encodes x as JSON without HTML escapes, as slog does.
func encode(x any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(x)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
