package catalog

import "mcpgateway/wire"

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

// mendSchemas sees to it that inputSchema is an object with "type": "object", as
// every revision of MCP asks ("tools", data types).
func (i Item) mendSchemas(input, output field) (Item, Flaw) {
	schema, at := input.value, input.at
	switch {
	case output.value != nil && !wire.IsObject(output.value):
		return i, Flaw{What: "its outputSchema is no object"}
	case schema == nil:
		end := int32(len(i.raw) - 1)
		return i.replaced(end, end, `,"inputSchema":{`+object+`}`), Flaw{What: "it had no inputSchema", Mended: true}
	case wire.IsNull(schema):
		return i.replaced(at, at+int32(len(schema)), `{`+object+`}`), Flaw{What: "its inputSchema was null", Mended: true}
	case !wire.IsObject(schema):
		return i, Flaw{What: "its inputSchema is no object"}
	}
	var types []string
	members := 0
	wire.Members(schema, func(key string, value []byte, _ int) {
		if members++; key == "type" {
			types = append(types, wire.Unquote(value))
		}
	})
	switch {
	case len(types) == 1 && types[0] == "object":
		return i, Flaw{}
	case len(types) > 0:
		return i, Flaw{What: `its inputSchema is not of type "object" alone`}
	}
	text := object
	if members > 0 {
		text += ","
	}
	return i.replaced(at+1, at+1, text), Flaw{What: "its inputSchema had no type", Mended: true}
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
