package catalog

import "mcpgateway/internal/wire"

// Schema returns the inputSchema of a tool, nil if it has none.
func (i Item) Schema() []byte {
	schema, _ := i.findSchema()
	return schema
}

func (i Item) findSchema() (schema []byte, at int32) {
	wire.Members(i.raw, func(key string, value []byte, where int) {
		if key == "inputSchema" {
			schema, at = value, int32(where)
		}
	})
	return schema, at
}

// WithSchema returns the tool with its inputSchema replaced. A tool without inputSchema is returned
// unchanged.
func (i Item) WithSchema(schema []byte) Item {
	was, at := i.findSchema()
	if was == nil {
		return i
	}
	i = i.replaceRange(at, at+int32(len(was)), string(schema))
	i.sum = i.computeDigest()
	return i
}

const objectTypeMember = `"type":"object"`

// repairInputSchema returns a tool whose inputSchema is an object with "type": "object", as every
// revision of MCP requires ("tools", data types). reason is not "" if the tool has to be omitted.
// schema is the inputSchema before a missing type is added; nil if the repair added or replaced the
// whole schema, or if the tool has to be omitted.
func (i Item) repairInputSchema(r *repair) (repaired Item, schema []byte, reason string) {
	schema, at := i.findSchema()
	switch {
	case schema == nil:
		end := int32(len(i.raw) - 1)
		r.note("inputSchema", "is missing and is added")
		return i.replaceRange(end, end, `,"inputSchema":{`+objectTypeMember+`}`), nil, ""
	// PHP writes {} as []
	case wire.IsNull(schema) || isArray(schema) && len(wire.Elements(schema)) == 0:
		r.note("inputSchema", "was not an object and is replaced by {"+objectTypeMember+"}")
		return i.replaceRange(at, at+int32(len(schema)), `{`+objectTypeMember+`}`), nil, ""
	case !wire.IsObject(schema):
		return i, nil, "its inputSchema is not an object"
	}
	kind := ""
	members, typed := 0, false
	wire.Members(schema, func(key string, value []byte, _ int) {
		if members++; key == "type" {
			kind, typed = wire.Unquote(value), true
		}
	})
	switch {
	case kind == "object":
		return i, schema, ""
	case typed:
		return i, nil, `its inputSchema is not of type "object"`
	}
	text := objectTypeMember
	if members > 0 {
		text += ","
	}
	r.note("inputSchema.type", "is missing and is added")
	return i.replaceRange(at+1, at+1, text), schema, "" // an added type needs no warning
}

// replaceRange replaces raw[lo:hi], which does not contain the literal of Original, by text.
func (i Item) replaceRange(lo, hi int32, text string) Item {
	raw := make([]byte, 0, len(i.raw)+len(text))
	raw = append(append(append(raw, i.raw[:lo]...), text...), i.raw[hi:]...)
	if i.originalStart >= hi {
		moved := int32(len(text)) - (hi - lo)
		i.originalStart, i.originalEnd = i.originalStart+moved, i.originalEnd+moved
	}
	i.raw = raw
	return i
}
