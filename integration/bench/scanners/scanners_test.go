// Package scanners compares wire.Parse with other JSON scanners
// (docs/decisions/023-json-scanner.md). It is a separate module, so that the gateway does not
// depend on these scanners:
//
//	cd integration/bench/scanners && go test -v . && go test -bench . -benchtime 100ms
package scanners

import (
	"bytes"
	"encoding/json"

	"github.com/bytedance/sonic"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"mcpgateway/internal/wire"
)

// parts are the parts of a call, as JSON text, that a gateway needs before it can forward the
// call. It also needs their offsets, which only wire and gjson report.
type parts struct{ id, method, name, token []byte }

// A scanner checks that text is JSON, with the strictness of its library, and returns the parts.
type scanner struct {
	name string
	find func(text []byte) (p parts, ok bool)
}

var scanners = []scanner{
	{"wire", func(text []byte) (parts, bool) {
		m, err := wire.Parse(text)
		return parts{m.Part(wire.PartID), m.Part(wire.PartMethod), m.Part(wire.PartName),
			m.Part(wire.PartToken)}, err == nil
	}},
	{"json", func(text []byte) (parts, bool) {
		var m struct {
			ID, Method json.RawMessage
			Params     struct {
				Name json.RawMessage
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		err := json.Unmarshal(text, &m)
		return parts{m.ID, m.Method, m.Params.Name, m.Params.Meta.ProgressToken}, err == nil
	}},
	{"jsontext", func(text []byte) (parts, bool) { return walk(text) }},
	{"jsontext-dup", func(text []byte) (parts,
		bool) {
		return walk(text, jsontext.AllowDuplicateNames(true))
	}},
	{"gjson", func(text []byte) (parts, bool) {
		if !gjson.ValidBytes(text) {
			return parts{}, false
		}
		r := gjson.GetManyBytes(text, "id", "method", "params.name", "params._meta.progressToken")
		return parts{raw(r[0]), raw(r[1]), raw(r[2]), raw(r[3])}, true
	}},
	{"sonic", func(text []byte) (parts, bool) {
		if !sonic.Valid(text) {
			return parts{}, false
		}
		return parts{get(text, "id"), get(text, "method"), get(text, "params", "name"),
			get(text, "params", "_meta", "progressToken")}, true
	}},
}

func raw(r gjson.Result) []byte {
	if !r.Exists() {
		return nil
	}
	return []byte(r.Raw)
}

func get(text []byte, path ...any) []byte {
	node, err := sonic.Get(text, path...)
	if err != nil {
		return nil
	}
	value, err := node.Raw()
	if err != nil {
		return nil
	}
	return []byte(value)
}

// walk finds the parts token by token, because jsontext has no paths.
func walk(text []byte, opts ...jsontext.Options) (p parts, ok bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), opts...)
	err := members(d, func(key string) error {
		switch key {
		case "id":
			return keep(d, &p.id)
		case "method":
			return keep(d, &p.method)
		case "params":
			return members(d, func(key string) error {
				switch key {
				case "name":
					return keep(d, &p.name)
				case "_meta":
					return members(d, func(key string) error {
						if key == "progressToken" {
							return keep(d, &p.token)
						}
						return d.SkipValue()
					})
				}
				return d.SkipValue()
			})
		}
		return d.SkipValue()
	})
	if err != nil {
		return p, false
	}
	_, err = d.ReadToken()
	return p, err != nil && err.Error() == "EOF"
}

// members calls visit for each member of the next object and skips other values.
func members(d *jsontext.Decoder, visit func(key string) error) error {
	if d.PeekKind() != '{' {
		return d.SkipValue()
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := visit(key.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func keep(d *jsontext.Decoder, at *[]byte) error {
	v, err := d.ReadValue()
	*at = bytes.Clone(v)
	return err
}
