package protocol

import (
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// adaptOutputSchemas converts the outputSchema of each tool in a list to the schema of an object.
// If a result was valid against the schema, the result of [adaptStructured] is valid against the
// new one.
func adaptOutputSchemas(tools []byte) []byte {
	return mapElements(tools, func(_ int, tool []byte) [][]byte {
		return [][]byte{mapMember(tool, "outputSchema", toObjectSchema)}
	})
}

// toObjectSchema returns a schema that accepts objects only. A value that is not an object is sent
// as {"result": value}, so the new schema describes that. If the schema allows both, the new
// schema is an anyOf of the two forms.
func toObjectSchema(schema []byte) []byte {
	types, may := rootType(schema)
	if types == `"object"` || !wire.IsObject(schema) && string(schema) != "true" {
		return schema
	}
	put := []wire.Member{{Key: "type", Text: []byte(`"object"`)}}
	if dialect, _ := wire.Lookup(schema, "$schema"); dialect != nil {
		put = append(put, wire.Member{Key: "$schema", Text: dialect})
		schema = dropMember(schema, "$schema")
	}
	if !may {
		inner := wire.Member{Key: "result", Text: relocateRefs(schema, "#/properties/result")}
		put = append(put, wire.Member{Key: "properties", Text: wire.EditObject(nil, nil, inner)},
			wire.Member{Key: "required", Text: []byte(`["result"]`)})
		return wire.EditObject(nil, nil, put...)
	}
	defs := wire.EditObject(nil, nil, wire.Member{Key: "value",
		Text: relocateRefs(schema, "#/$defs/value")})
	put = append(put, wire.Member{Key: "$defs", Text: defs}, wire.Member{Key: "anyOf", Text: []byte(
		`[{"$ref":"#/$defs/value"},` +
			`{"properties":{"result":{"$ref":"#/$defs/value"}},"required":["result"]}]`)})
	return wire.EditObject(nil, nil, put...)
}

// rootType returns the JSON text of a schema's type, if it is a single one, and reports whether
// the schema may accept an object.
func rootType(schema []byte) (types string, may bool) {
	value, _ := wire.Lookup(schema, "type")
	switch {
	case value == nil:
		return "", true
	case value[0] == '[':
		return "", slices.ContainsFunc(wire.Elements(value), func(t []byte) bool {
			return wire.Unquote(t) == "object"
		})
	}
	return string(value), wire.Unquote(value) == "object"
}

// relocateRefs returns a schema whose local references are still correct when it is moved to the
// JSON pointer place of another schema. References inside a schema with an $id are relative to
// that schema and stay; references to anchors work anywhere. Objects in unknown keywords are
// treated as schemas, because references may point there. The recursion is as deep as the schema,
// which package catalog bounds.
func relocateRefs(schema []byte, pointer string) []byte {
	switch {
	case schema[0] == '[':
		return mapElements(schema, func(_ int, one []byte) [][]byte {
			return [][]byte{relocateRefs(one, pointer)}
		})
	case schema[0] != '{' || stringMember(schema, "$id") != "":
		return schema
	}
	return mapMembers(schema, func(keyword string, value []byte) []byte {
		switch {
		case keyword == "$ref" && value[0] == '"':
			switch ref := wire.Unquote(value); {
			case ref == "" || ref == "#" || ref == "#/": // Ajv treats "#/" as "#"
				return wire.Quote(pointer)
			case strings.HasPrefix(ref, "#/"):
				return wire.Quote(pointer + ref[1:])
			}
			return value
		case schemaMapKeywords[keyword] && value[0] == '{':
			return mapMembers(value, func(_ string, one []byte) []byte {
				return relocateRefs(one, pointer)
			})
		case keyword == "const" || keyword == "enum" || keyword == "default" ||
			keyword == "examples":
			return value
		}
		return relocateRefs(value, pointer)
	})
}
