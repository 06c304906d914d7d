package catalog

import (
	"bytes"
	"fmt"

	"mcpgateway/internal/text"
	"mcpgateway/internal/wire"
)

const (
	// maxSchemaCheckDepth is the number of levels of a schema that are checked.
	maxSchemaCheckDepth = 10
	// maxShownPath bounds the path in a warning, in bytes.
	maxShownPath = 300
)

// modelAPIWarning returns a reason that may lead model APIs to reject a tool's inputSchema, and
// with it every request that contains the tool; "" if there is no known reason.
func modelAPIWarning(schema []byte) string {
	top := ""
	at, want := findMemberMismatch(schema, func(key string) schemaKind {
		switch key {
		case "oneOf", "anyOf", "allOf", "not", "enum":
			top = key
		}
		return keywordKinds[key]
	}, kindSchema, maxSchemaCheckDepth-1)
	switch {
	case top != "":
		return "its inputSchema has " + top +
			" at its top, and some model APIs refuse every request with such a tool"
	case want != "":
		return fmt.Sprintf("its inputSchema is not valid in JSON Schema 2020-12, and "+
			"some model APIs refuse every request with such a tool: %s is not %s",
			text.Truncate(at, maxShownPath), want) // the backend chooses the keys
	}
	return ""
}

// A schemaKind is the kind of value that a keyword of JSON Schema requires.
type schemaKind string

const (
	kindNumber      schemaKind = "a number"
	kindCount       schemaKind = "a whole number"
	kindString      schemaKind = "a string"
	kindBool        schemaKind = "true or false"
	kindArray       schemaKind = "an array"
	kindStringArray schemaKind = "an array of strings"
	kindSchema      schemaKind = "a schema"
	kindSchemaArray schemaKind = "an array of schemas"
	kindSchemaMap   schemaKind = "an object of schemas"
	kindTypeName    schemaKind = "one of the types, nor an array of them"
)

// keywordKinds contains the keywords of draft 2020-12 that had another form in earlier drafts, or
// whose value is often wrong.
var keywordKinds = map[string]schemaKind{
	"type": kindTypeName, "enum": kindArray, "required": kindStringArray, "examples": kindArray,
	"minimum": kindNumber, "maximum": kindNumber,
	"exclusiveMinimum": kindNumber, "exclusiveMaximum": kindNumber, "multipleOf": kindNumber,
	"minLength": kindCount, "maxLength": kindCount, "minItems": kindCount, "maxItems": kindCount,
	"minProperties": kindCount, "maxProperties": kindCount,
	"minContains": kindCount, "maxContains": kindCount,
	"pattern": kindString, "format": kindString, "title": kindString, "description": kindString,
	"$ref": kindString, "$schema": kindString, "$id": kindString,
	"uniqueItems": kindBool, "deprecated": kindBool, "readOnly": kindBool, "writeOnly": kindBool,
	"items": kindSchema, "additionalProperties": kindSchema, "propertyNames": kindSchema,
	"contains": kindSchema, "not": kindSchema,
	"if": kindSchema, "then": kindSchema, "else": kindSchema,
	"unevaluatedItems": kindSchema, "unevaluatedProperties": kindSchema,
	"allOf": kindSchemaArray, "anyOf": kindSchemaArray,
	"oneOf": kindSchemaArray, "prefixItems": kindSchemaArray,
	"properties": kindSchemaMap, "patternProperties": kindSchemaMap,
	"dependentSchemas": kindSchemaMap, "$defs": kindSchemaMap, "definitions": kindSchemaMap,
}

// findMismatch returns the path to the first value that is not of its required kind, and the
// required kind; want is "" if there is no such value. It checks the given number of levels of
// nested schemas.
func findMismatch(value []byte, must schemaKind, levels int) (at string, want schemaKind) {
	ok := true
	first := value[0]
	switch must {
	case kindNumber:
		ok = first == '-' || '0' <= first && first <= '9'
	case kindCount:
		ok = '0' <= first && first <= '9'
	case kindString:
		ok = first == '"'
	case kindBool:
		ok = first == 't' || first == 'f'
	case kindArray:
		ok = first == '['
	case kindStringArray:
		ok = first == '[' && allElements(value, func(one []byte) bool { return one[0] == '"' })
	case kindTypeName:
		ok = isTypeLiteral(value) || first == '[' && allElements(value, isTypeLiteral)
	case kindSchema:
		if first == 't' || first == 'f' {
			return "", ""
		}
		return findMemberMismatch(value, func(key string) schemaKind { return keywordKinds[key] },
			must, levels-1)
	case kindSchemaMap:
		return findMemberMismatch(value, func(string) schemaKind { return kindSchema }, must,
			levels)
	case kindSchemaArray:
		ok = first == '[' && len(bytes.TrimSpace(value[1:len(value)-1])) > 0
		for i, one := range wire.Elements(value) {
			if at, want = findMismatch(one, kindSchema, levels); want != "" {
				return fmt.Sprintf("[%d]%s", i, at), want
			}
		}
	}
	if !ok {
		return "", must
	}
	return "", ""
}

// findMemberMismatch returns the first mismatch among the members of an object, like findMismatch.
// The function of returns the required kind for each key, "" for a member that is not checked. If
// object is not an object, want is must.
func findMemberMismatch(
	object []byte, of func(key string) schemaKind, must schemaKind, levels int,
) (at string, want schemaKind) {
	if object[0] != '{' {
		return "", must
	}
	if levels < 0 {
		return "", ""
	}
	wire.Members(object, func(key string, value []byte, _ int) {
		must := of(key)
		if want != "" || must == "" {
			return
		}
		if below, w := findMismatch(value, must, levels); w != "" {
			at, want = "."+key+below, w
		}
	})
	return at, want
}

// allElements reports whether the function ok returns true for all elements of an array.
func allElements(array []byte, ok func([]byte) bool) bool {
	all := true
	wire.EachElement(array, func(one []byte) bool {
		all = ok(one)
		return all
	})
	return all
}

func isTypeLiteral(value []byte) bool {
	switch wire.Unquote(value) {
	case "null", "boolean", "object", "array", "number", "string", "integer":
		return true
	}
	return false
}
