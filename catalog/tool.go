package catalog

import "mcpgateway/internal/wire"

// Schema returns the inputSchema of a tool, nil if it has none.
func (i Item) Schema() []byte {
	schema, _ := i.schema()
	return schema
}

func (i Item) schema() (schema []byte, at int32) {
	wire.Members(i.raw, func(key string, value []byte, where int) {
		if key == "inputSchema" {
			schema, at = value, int32(where)
		}
	})
	return schema, at
}

// WithSchema returns a tool with another inputSchema in the place of the one that it
// has.
func (i Item) WithSchema(schema []byte) Item {
	was, at := i.schema()
	if was == nil {
		return i
	}
	i = i.replaced(at, at+int32(len(was)), string(schema))
	i.sum = i.digest()
	return i
}

// Schema returns the inputSchema of the tool that a name stands for, as [Snapshot.Lookup]
// finds it; nil if there is no such tool. It must not be changed.
func (s *Snapshot) Schema(name string) []byte {
	if i := s.tool(name); i != nil {
		return i.Schema()
	}
	return nil
}

// Tool returns the tool that a name stands for, as [Snapshot.Lookup] finds it, in its
// backend's own bytes; nil if there is none. It must not be changed.
func (s *Snapshot) Tool(name string) []byte {
	if i := s.tool(name); i != nil {
		return i.Raw()
	}
	return nil
}

func (s *Snapshot) tool(name string) *Item {
	if e := s.lists[Tools].lookup(name); e != nil {
		return &e.Item
	}
	return nil
}

const object = `"type":"object"`

// mendSchema returns a tool whose inputSchema is an object with "type": "object", as every revision of
// MCP wants it ("tools", data types), or why the tool has to be left out. The schema is nil if it was made here.
func (i Item) mendSchema(r *repair) (mended Item, schema []byte, why string) {
	schema, at := i.schema()
	switch {
	case schema == nil:
		end := int32(len(i.raw) - 1)
		r.note("inputSchema", "is missing and is added")
		return i.replaced(end, end, `,"inputSchema":{`+object+`}`), nil, ""
	case wire.IsNull(schema) || isArray(schema) && len(wire.Elements(schema)) == 0: // as PHP writes {}
		r.note("inputSchema", "was not an object and is replaced by {"+object+"}")
		return i.replaced(at, at+int32(len(schema)), `{`+object+`}`), nil, ""
	case !wire.IsObject(schema):
		return i, nil, "its inputSchema is no object"
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
	text := object
	if members > 0 {
		text += ","
	}
	r.note("inputSchema.type", "is missing and is added")
	return i.replaced(at+1, at+1, text), schema, "" // the type is nothing to doubt
}

// replaced returns the item with raw[lo:hi], which does not hold Own's literal,
// exchanged.
func (i Item) replaced(lo, hi int32, text string) Item {
	raw := make([]byte, 0, len(i.raw)+len(text))
	raw = append(append(append(raw, i.raw[:lo]...), text...), i.raw[hi:]...)
	if i.at >= hi {
		moved := int32(len(text)) - (hi - lo)
		i.at, i.end = i.at+moved, i.end+moved
	}
	i.raw = raw
	return i
}
