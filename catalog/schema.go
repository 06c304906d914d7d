package catalog

import (
	"bytes"
	"fmt"
	"strings"

	"mcpgateway/internal/wire"
)

const (
	// maxEntry bounds one entry of a list, in bytes: it goes into a model's context.
	maxEntry = 1 << 20
	// maxNesting bounds how deep arrays and objects nest in an entry. There are clients that
	// bear little more, and people write nothing like it.
	maxNesting = 100
	// maxLooked is how deep a schema is looked at.
	maxLooked = 10
	// maxPath is how much is told of where in a schema something is, in bytes.
	maxPath = 300
)

// nestsDeeper reports whether arrays and objects nest deeper than most in a JSON text.
func nestsDeeper(text []byte, most int) bool {
	if bytes.Count(text, []byte{'{'})+bytes.Count(text, []byte{'['}) <= most {
		return false // as nearly always
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// doubt returns for what model APIs may refuse a tool's inputSchema, and with it every request
// that lists the tool; "" if for nothing that is known.
func doubt(schema []byte) string {
	top := ""
	at, want := inside(schema, func(key string) shape {
		switch key {
		case "oneOf", "anyOf", "allOf", "not", "enum":
			top = key
		}
		return keywords[key]
	}, aSchema, maxLooked-1)
	switch {
	case top != "":
		return "its inputSchema has " + top + " at its top, for which some model APIs refuse every request that lists it"
	case want != "":
		if len(at) > maxPath { // of keys as long as the backend likes
			at = strings.ToValidUTF8(at[:maxPath], "") + "…"
		}
		return fmt.Sprintf("its inputSchema is not valid in JSON Schema 2020-12, for which some model APIs refuse every request that lists it: %s is not %s", at, want)
	}
	return ""
}

// A shape is what a keyword of JSON Schema must be.
type shape string

const (
	aNumber   shape = "a number"
	aCount    shape = "a whole number"
	aString   shape = "a string"
	aFlag     shape = "true or false"
	anArray   shape = "an array"
	someTexts shape = "an array of strings"
	aSchema   shape = "a schema"
	aList     shape = "an array of schemas"
	aMap      shape = "an object of schemas"
	aType     shape = "one of the types, nor an array of them"
)

// keywords are those of the draft of 2020-12 that an earlier one had in another shape, or that
// are often mistaken.
var keywords = map[string]shape{
	"type": aType, "enum": anArray, "required": someTexts, "examples": anArray,
	"minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aNumber, "exclusiveMaximum": aNumber, "multipleOf": aNumber,
	"minLength": aCount, "maxLength": aCount, "minItems": aCount, "maxItems": aCount, "minProperties": aCount, "maxProperties": aCount,
	"minContains": aCount, "maxContains": aCount,
	"pattern": aString, "format": aString, "title": aString, "description": aString, "$ref": aString, "$schema": aString, "$id": aString,
	"uniqueItems": aFlag, "deprecated": aFlag, "readOnly": aFlag, "writeOnly": aFlag,
	"items": aSchema, "additionalProperties": aSchema, "propertyNames": aSchema, "contains": aSchema, "not": aSchema,
	"if": aSchema, "then": aSchema, "else": aSchema, "unevaluatedItems": aSchema, "unevaluatedProperties": aSchema,
	"allOf": aList, "anyOf": aList, "oneOf": aList, "prefixItems": aList,
	"properties": aMap, "patternProperties": aMap, "dependentSchemas": aMap, "$defs": aMap, "definitions": aMap,
}

// wrong returns what in a value is not as it must be, as a path, and what that must be; want is
// "" if all is well as far as it is looked at.
func wrong(value []byte, must shape, levels int) (at string, want shape) {
	ok := true
	first := value[0]
	switch must {
	case aNumber:
		ok = first == '-' || '0' <= first && first <= '9'
	case aCount:
		ok = '0' <= first && first <= '9'
	case aString:
		ok = first == '"'
	case aFlag:
		ok = first == 't' || first == 'f'
	case anArray:
		ok = first == '['
	case someTexts:
		ok = first == '[' && each(value, func(one []byte) bool { return one[0] == '"' })
	case aType:
		ok = isType(value) || first == '[' && each(value, isType)
	case aSchema:
		if first == 't' || first == 'f' {
			return "", ""
		}
		return inside(value, func(key string) shape { return keywords[key] }, must, levels-1)
	case aMap:
		return inside(value, func(string) shape { return aSchema }, must, levels)
	case aList:
		ok = first == '[' && len(bytes.TrimSpace(value[1:len(value)-1])) > 0
		for i, one := range wire.Elements(value) {
			if at, want = wrong(one, aSchema, levels); want != "" {
				return fmt.Sprintf("[%d]%s", i, at), want
			}
		}
	}
	if !ok {
		return "", must
	}
	return "", ""
}

// inside is wrong for the members of an object, each of which must be what of says.
func inside(object []byte, of func(key string) shape, must shape, levels int) (at string, want shape) {
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
		if below, w := wrong(value, must, levels); w != "" {
			at, want = "."+key+below, w
		}
	})
	return at, want
}

// each reports whether all elements of an array are ok.
func each(array []byte, ok func([]byte) bool) bool {
	all := true
	wire.EachElement(array, func(one []byte) bool {
		all = ok(one)
		return all
	})
	return all
}

func isType(value []byte) bool {
	switch wire.Unquote(value) {
	case "null", "boolean", "object", "array", "number", "string", "integer":
		return true
	}
	return false
}
