package protocol

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// maxParamHeaders bounds the number of a tool's arguments that headers repeat, because servers
// accept a limited number of headers.
const maxParamHeaders = 64

// CheckHeaderSchema returns a description of a problem with the header annotations of a tool's
// inputSchema, "" if they are valid. A tool with invalid annotations must not be used over HTTP
// ("Clients MUST exclude").
func CheckHeaderSchema(schema []byte) string {
	problem := ""
	seen := make(map[string]bool)
	eachAnnotation(schema, func(path []string, reached bool, property, value []byte) {
		name := wire.Unquote(value)
		lower := strings.ToLower(name)
		switch {
		case problem != "":
		case !reached || len(path) == 0:
			problem = HeaderAnnotation + " is at a place that properties alone do not reach"
		case !isToken(name):
			problem = fmt.Sprintf("%s of %s is not a valid header name", HeaderAnnotation,
				strings.Join(path, "."))
		case !isHeaderType(property):
			problem = fmt.Sprintf("%s of %s, which is not a string, integer or boolean",
				HeaderAnnotation,
				strings.Join(path, "."))
		case seen[lower]:
			problem = fmt.Sprintf("%s %s occurs twice", HeaderAnnotation, name)
		case len(seen) == maxParamHeaders:
			problem = fmt.Sprintf("%s occurs more than %d times", HeaderAnnotation, maxParamHeaders)
		}
		seen[lower] = true
	})
	return problem
}

// StripHeaderAnnotations returns a tool's inputSchema without header annotations. Other members
// keep their bytes. Schemas at more than maxSchemaDepth levels stay unchanged.
func StripHeaderAnnotations(schema []byte) []byte {
	if !mayHaveAnnotation(schema) {
		return schema
	}
	return mapSchemas(schema, func(schema []byte) ([]byte, bool) {
		return dropMember(schema, HeaderAnnotation), true
	})
}

// eachParamHeader calls visit for each argument of the tool that a header repeats. path leads to
// the argument; visit must not keep it. name is the header's name without Mcp-Param-.
// eachParamHeader skips annotations that are not valid header names or that properties alone do not
// reach, and all annotations after the first [maxParamHeaders].
func eachParamHeader(schema []byte, visit func(path []string, name string)) {
	n := 0
	eachAnnotation(schema, func(path []string, reached bool, _, value []byte) {
		name := wire.Unquote(value)
		if reached && len(path) > 0 && isToken(name) && n < maxParamHeaders {
			visit(path, name)
			n++
		}
	})
}

// An annotationVisitor is called for each annotation. path contains the properties on the way to
// the annotated schema, reached is true if the way contains only properties, schema is the
// annotated schema, and value is the annotation.
type annotationVisitor func(path []string, reached bool, schema, value []byte)

func eachAnnotation(schema []byte, visit annotationVisitor) {
	eachAnnotationIn(schema, nil, true, maxSchemaDepth, visit)
}

func eachAnnotationIn(schema []byte, path []string, reached bool, levels int,
	visit annotationVisitor) {
	if levels == 0 || !mayHaveAnnotation(schema) || !wire.IsObject(schema) {
		return
	}
	wire.Members(schema, func(key string, value []byte, _ int) {
		if key == HeaderAnnotation {
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

// mayHaveAnnotation is a quick check that returns false for most schemas without annotations. It
// returns true for schemas with escapes, because keys may contain escapes.
func mayHaveAnnotation(schema []byte) bool {
	return bytes.Contains(schema, []byte(HeaderAnnotation)) || bytes.Contains(schema, []byte(`\u`))
}

// isHeaderType reports whether a header can represent values of all types of a schema.
func isHeaderType(schema []byte) bool {
	types, _ := wire.Lookup(schema, "type")
	if len(types) > 0 && types[0] == '[' {
		return !slices.ContainsFunc(wire.Elements(types), func(t []byte) bool {
			return !isHeaderTypeName(t)
		}) && len(wire.Elements(types)) > 0
	}
	return isHeaderTypeName(types)
}

func isHeaderTypeName(literal []byte) bool {
	t := wire.Unquote(literal)
	return t == "string" || t == "integer" || t == "boolean"
}

// isToken reports whether name is a valid header name (RFC 9110 §5.6.2).
func isToken(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') &&
			strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}
