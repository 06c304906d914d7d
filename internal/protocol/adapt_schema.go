package protocol

import (
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// objectOutputs returns the tools of a list, each with an outputSchema of an object, if
// it has any: what [structured] makes of a result is valid by it if the result was.
func objectOutputs(tools []byte) []byte {
	return mapElements(tools, func(_ int, tool []byte) [][]byte {
		return [][]byte{mapMember(tool, "outputSchema", objectSchema)}
	})
}

// objectSchema returns a schema as one that says that the value is an object. A value
// that is none is told as {"result": value}: then so does the schema. Where it leaves
// open what the value is, that is one of two ways.
func objectSchema(schema []byte) []byte {
	types, may := mayBeObject(schema)
	if types == `"object"` || !wire.IsObject(schema) && string(schema) != "true" {
		return schema
	}
	put := []wire.Member{{Key: "type", Text: []byte(`"object"`)}}
	if dialect, _ := wire.Lookup(schema, "$schema"); dialect != nil {
		put = append(put, wire.Member{Key: "$schema", Text: dialect})
		schema = without(schema, "$schema")
	}
	if !may {
		inner := wire.Member{Key: "result", Text: moved(schema, "#/properties/result")}
		put = append(put, wire.Member{Key: "properties", Text: wire.EditObject(nil, nil, inner)},
			wire.Member{Key: "required", Text: []byte(`["result"]`)})
		return wire.EditObject(nil, nil, put...)
	}
	defs := wire.EditObject(nil, nil, wire.Member{Key: "value", Text: moved(schema, "#/$defs/value")})
	put = append(put, wire.Member{Key: "$defs", Text: defs}, wire.Member{Key: "anyOf", Text: []byte(
		`[{"$ref":"#/$defs/value"},{"properties":{"result":{"$ref":"#/$defs/value"}},"required":["result"]}]`)})
	return wire.EditObject(nil, nil, put...)
}

// mayBeObject returns the type that a schema's root says, as it says it, and whether an
// object can be valid by it.
func mayBeObject(schema []byte) (types string, may bool) {
	value, _ := wire.Lookup(schema, "type")
	switch {
	case value == nil:
		return "", true
	case value[0] == '[':
		return "", slices.ContainsFunc(wire.Elements(value), func(t []byte) bool { return wire.Unquote(t) == "object" })
	}
	return string(value), wire.Unquote(value) == "object"
}

// moved returns a schema whose references to places in itself find them when it stands
// at another place. Those in one that has an $id start from there, wherever it stands;
// what refers to an anchor finds it, too. Objects in unknown keywords count as schemas,
// since a reference may lead there. It recurses as deep as the schema nests, which the
// catalog bounds.
func moved(schema []byte, place string) []byte {
	switch {
	case schema[0] == '[':
		return mapElements(schema, func(_ int, one []byte) [][]byte { return [][]byte{moved(one, place)} })
	case schema[0] != '{' || member(schema, "$id") != "":
		return schema
	}
	return mapMembers(schema, func(keyword string, value []byte) []byte {
		switch {
		case keyword == "$ref" && value[0] == '"':
			switch ref := wire.Unquote(value); {
			case ref == "" || ref == "#" || ref == "#/": // the last one by Ajv's reading
				return wire.Quote(place)
			case strings.HasPrefix(ref, "#/"):
				return wire.Quote(place + ref[1:])
			}
			return value
		case namesSchemas[keyword] && value[0] == '{':
			return mapMembers(value, func(_ string, one []byte) []byte { return moved(one, place) })
		case keyword == "const" || keyword == "enum" || keyword == "default" || keyword == "examples":
			return value
		}
		return moved(value, place)
	})
}
