package protocol

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// In a tool's inputSchema this keyword names the header that repeats an argument.
const annotation = "x-mcp-header"

// maxHeaders bounds the arguments of a tool that headers repeat: servers take a
// limited number of headers.
const maxHeaders = 64

// CheckHeaderSchema tells what is wrong with the headers that a tool's inputSchema wants, ""
// if nothing is. Over HTTP a tool with a flaw must not be used: "Clients MUST exclude"
// it.
func CheckHeaderSchema(schema []byte) string {
	flaw := ""
	seen := make(map[string]bool)
	eachAnnotation(schema, func(path []string, reached bool, property, value []byte) {
		name := wire.Unquote(value)
		lower := strings.ToLower(name)
		switch {
		case flaw != "":
		case !reached || len(path) == 0:
			flaw = annotation + " stands where properties alone do not lead"
		case !isToken(name):
			flaw = fmt.Sprintf("%s of %s is no name of a header", annotation, strings.Join(path, "."))
		case !isSayable(property):
			flaw = fmt.Sprintf("%s of %s, which is no string, integer or boolean", annotation, strings.Join(path, "."))
		case seen[lower]:
			flaw = fmt.Sprintf("%s %s stands twice", annotation, name)
		case len(seen) == maxHeaders:
			flaw = fmt.Sprintf("%s stands more than %d times", annotation, maxHeaders)
		}
		seen[lower] = true
	})
	return flaw
}

// StripHeaderAnnotations returns a tool's inputSchema that wants no headers. What else it says
// keeps its bytes.
func StripHeaderAnnotations(schema []byte) []byte {
	if !isAnnotated(schema) {
		return schema
	}
	return mapSchemas(schema, func(schema []byte) ([]byte, bool) { return without(schema, annotation), true })
}

// eachHeader calls visit for each argument that a header repeats: the path to it, which
// it must not keep, and the header's name, without Mcp-Param-. Annotations that could
// be no header are passed over, and so are those behind the first [maxHeaders].
func eachHeader(schema []byte, visit func(path []string, name string)) {
	n := 0
	eachAnnotation(schema, func(path []string, reached bool, _, value []byte) {
		name := wire.Unquote(value)
		if reached && len(path) > 0 && isToken(name) && n < maxHeaders {
			visit(path, name)
			n++
		}
	})
}

// An annotated is called with an annotation: the path of properties to the schema that
// has it, reached if nothing but properties leads there, that schema, and the value.
type annotated func(path []string, reached bool, schema, value []byte)

func eachAnnotation(schema []byte, visit annotated) {
	eachAnnotationIn(schema, nil, true, maxSchemas, visit)
}

func eachAnnotationIn(schema []byte, path []string, reached bool, levels int, visit annotated) {
	if levels == 0 || !isAnnotated(schema) || !wire.IsObject(schema) {
		return
	}
	wire.Members(schema, func(key string, value []byte, _ int) {
		if key == annotation {
			visit(path, reached, schema, value)
		}
	})
	eachSchema(schema, func(keyword, name string, inner []byte) {
		if keyword == "properties" {
			eachAnnotationIn(inner, append(path, name), reached, levels-1, visit)
		} else {
			eachAnnotationIn(inner, path, false, levels-1, visit)
		}
	})
}

// isAnnotated is the glance that tells most schemas from those that may want headers.
// A key may have escapes.
func isAnnotated(schema []byte) bool {
	return bytes.Contains(schema, []byte(annotation)) || bytes.Contains(schema, []byte(`\u`))
}

// isSayable reports whether all types of a schema are such that a header can say them.
func isSayable(schema []byte) bool {
	types, _ := wire.Lookup(schema, "type")
	if len(types) > 0 && types[0] == '[' {
		return !slices.ContainsFunc(wire.Elements(types), func(t []byte) bool { return !isSayableType(t) }) && len(wire.Elements(types)) > 0
	}
	return isSayableType(types)
}

func isSayableType(literal []byte) bool {
	t := wire.Unquote(literal)
	return t == "string" || t == "integer" || t == "boolean"
}

// isToken reports whether a header may have that name (RFC 9110 §5.6.2).
func isToken(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}
