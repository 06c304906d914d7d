package catalog

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mcpgateway/internal/lazy"
)

// Bounds of the outputSchema of a tool. Ajv compiles about 5,000 schemas per second into
// JavaScript. The stack of the JavaScript engine overflows at about twice maxCompiledDepth or
// maxBranches.
const (
	// maxCompiled bounds the number of schemas that Ajv compiles for one outputSchema. A schema
	// that Ajv copies in place of references counts once for each reference.
	maxCompiled = 10_000
	// maxCompiledDepth bounds the nesting of the generated code for one schema, with references
	// followed.
	maxCompiledDepth = 1_200
	// A nested schema counts as schemaDepth levels, and a reference as refDepth levels. Each schema
	// of an anyOf or oneOf counts as one level. Below the keywords not and if, where the generated
	// code stops at the first error, each schema of any list or map and each keyword also counts as
	// one level.
	schemaDepth = 2
	refDepth    = 8
	// maxBareRefs bounds a chain of schemas that contain only a reference to the next one.
	maxBareRefs = 400
	// maxBranches bounds the number of schemas in one anyOf, oneOf or patternProperties.
	maxBranches = 1_000
)

// A schemaCompiler determines whether Ajv can compile a JSON Schema with the options of the npm
// SDK: draft-07 regardless of $schema, "strict" and "validateSchema" off, and with ajv-formats. It
// imitates Ajv 8.20, which accepts more schemas than the meta-schema does: Ajv reads only the
// subschemas that it needs, and ignores unknown keywords.
//
// The schema must also compile as a subschema, because package protocol embeds it in another schema
// for clients of earlier revisions.
type schemaCompiler struct {
	root        map[string]any
	anchors     map[string]schemaValue
	targets     map[string]*refTarget // by the text of $ref
	inline      map[string]bool       // by location: whether a schema contains no references
	schemaCount int

	problemPath, problem string // the first problem
}

// A schemaValue is a value inside a schema.
type schemaValue struct {
	value  any
	path   []string
	inData bool // inside the value of a keyword such as const
}

// A refTarget is the target of a reference.
type refTarget struct {
	schemaValue
	inline bool // contains no references, so that Ajv copies it in place of each reference to it
}

// checkCompiles returns the first problem that makes a JSON Schema compiler reject schema, and its
// path; problem is "" if there is none.
func checkCompiles(schema []byte) (at, problem string) {
	c := schemaCompiler{anchors: make(map[string]schemaValue), targets: make(map[string]*refTarget),
		inline: make(map[string]bool)}
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	if err := d.Decode(&c.root); err != nil {
		return "", "is not an object"
	}
	switch {
	case truthy(c.root["$async"]):
		c.fail([]string{"$async"}, "is refused: clients do not wait for a validator")
	case truthy(c.root["$id"]): // withoutIdentifiers has removed it if it was a string
		c.fail([]string{"$id"}, "is not a string")
	case c.findAnchors(c.root, nil):
		c.schema(c.root, nil, nesting{})
	}
	return c.problemPath, c.problem
}

func (c *schemaCompiler) fail(path []string, problem string) (ok bool) {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("." + name)
	}
	c.problemPath, c.problem = b.String(), problem
	return false
}

// appendPath returns path with name appended. Results do not share memory.
func appendPath(path []string, name string) []string {
	return append(path[:len(path):len(path)], name)
}

var anchor = lazy.Regexp(`^[A-Za-z_][-A-Za-z0-9._]*$`)

// schemaLists and schemaMaps are the keywords that contain several schemas. An object in any other
// member is treated as a schema, unless the member is one of dataMembers.
var (
	schemaLists = []string{"items", "allOf", "anyOf", "oneOf"}
	schemaMaps  = []string{"$defs", "definitions", "properties", "patternProperties",
		"dependencies"}
	dataMembers = []string{
		"default", "enum", "const", "required", "maximum", "minimum", "exclusiveMaximum",
		"exclusiveMinimum", "multipleOf",
		"maxLength", "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems",
		"maxProperties", "minProperties",
	}
)

// prototypeNames are the names of the properties that every JavaScript object inherits. Ajv treats
// them as known keywords: it reads an array in such a member as a list of schemas, and an object as
// a map of schemas.
var prototypeNames = []string{
	"__proto__", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable",
	"toLocaleString", "toString", "valueOf",
	"__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
}

func hasSchemaList(key string) bool {
	return slices.Contains(schemaLists, key) || slices.Contains(prototypeNames, key)
}

func hasSchemaMap(key string) bool {
	return slices.Contains(schemaMaps, key) || slices.Contains(prototypeNames, key)
}

// findAnchors records the anchors of the schema and of all its subschemas. It fails if an anchor is
// invalid or occurs twice. The method find rejects references to the anchor of the root.
func (c *schemaCompiler) findAnchors(schema map[string]any, path []string) (ok bool) {
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if name, isText := schema[key].(string); isText {
			if !anchor().MatchString(name) {
				return c.fail(appendPath(path, key), "is not an anchor")
			}
			if _, twice := c.anchors[name]; twice {
				return c.fail(appendPath(path, key), "occurs twice")
			}
			c.anchors[name] = schemaValue{value: schema, path: path}
		}
	}
	ok = true
	inside := func(value any, path []string) {
		if m, isObject := value.(map[string]any); ok && isObject {
			ok = c.findAnchors(m, path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(schema)) {
		path := appendPath(path, key)
		switch list, isArray := schema[key].([]any); {
		case isArray && hasSchemaList(key):
			for i, one := range list {
				inside(one, appendPath(path, strconv.Itoa(i)))
			}
		case hasSchemaMap(key):
			many, _ := schema[key].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(many)) {
				inside(many[name], appendPath(path, name))
			}
		case !slices.Contains(dataMembers, key):
			inside(schema[key], path)
		}
	}
	return ok
}

// ajvKeywords are the keywords that Ajv compiles, with a function that returns the expected value
// if Ajv does not accept the actual one; nil = Ajv accepts every value. Ajv ignores all other
// keywords except prototypeNames.
var ajvKeywords = map[string]func(value any) (want string){
	"$ref": wantString, "format": wantString, "pattern": wantString,
	"minimum": wantNumber, "maximum": wantNumber, "multipleOf": wantNumber,
	"exclusiveMinimum": wantNumber, "exclusiveMaximum": wantNumber,
	"minLength": wantNumber, "maxLength": wantNumber,
	"minItems": wantNumber, "maxItems": wantNumber,
	"minProperties": wantNumber, "maxProperties": wantNumber,
	"formatMinimum": wantString, "formatMaximum": wantString,
	"formatExclusiveMinimum": wantString, "formatExclusiveMaximum": wantString,
	"required": wantNames, "allOf": wantArray, "anyOf": wantArray, "oneOf": wantArray,
	"nullable": wantBool, "uniqueItems": wantBool,
	"properties": wantObject, "patternProperties": wantObject, "dependencies": wantObject,
	"not": wantSchema, "if": wantSchema, "then": wantSchema, "else": wantSchema,
	"propertyNames": wantSchema, "contains": wantSchema,
	"additionalProperties": wantSchema, "additionalItems": wantSchema,
	"const": nil, "$comment": nil,
	"id": func(any) string { return `a keyword since draft-06 ("$id" is)` },
	"type": func(v any) string {
		types, isArray := v.([]any)
		if text, isText := v.(string); isText && (text == "" || isTypeName(text)) ||
			isArray && !slices.ContainsFunc(types, func(v any) bool { return !isTypeName(v) }) {
			return ""
		}
		return "one of the types, nor an array of them"
	},
	"enum": func(v any) string {
		if list, _ := v.([]any); len(list) > 0 {
			return ""
		}
		return "an array with a value"
	},
	"items": func(v any) string {
		if _, isArray := v.([]any); isArray {
			return ""
		}
		return wantSchema(v)
	},
}

func wantType[T any](v any, want string) string {
	if _, ok := v.(T); ok {
		return ""
	}
	return want
}

func wantString(v any) string { return wantType[string](v, "a string") }
func wantNumber(v any) string { return wantType[json.Number](v, "a number") }
func wantBool(v any) string   { return wantType[bool](v, "true or false") }
func wantArray(v any) string  { return wantType[[]any](v, "an array") }

// wantNames accepts all arrays whose elements JavaScript can convert to strings.
func wantNames(v any) string {
	list, isArray := v.([]any)
	for _, one := range list {
		switch one.(type) {
		case []any, map[string]any:
			isArray = false
		}
	}
	if isArray {
		return ""
	}
	return "an array of strings"
}

func wantObject(v any) string { return wantType[map[string]any](v, "an object") }

func wantSchema(v any) string {
	if _, isBool := v.(bool); isBool {
		return ""
	}
	return wantType[map[string]any](v, "a schema")
}

func isTypeName(v any) bool {
	switch v {
	case "null", "boolean", "object", "array", "number", "string", "integer":
		return true
	}
	return false
}

// isTrivial reports whether Ajv treats a schema as one that accepts every value, without compiling
// it.
func isTrivial(schema any) bool {
	switch s := schema.(type) {
	case bool:
		return s
	case map[string]any:
		for key := range s {
			if isKeyword(key) {
				return false
			}
		}
	}
	return true
}

// isKeyword reports whether the keyword makes Ajv compile a schema.
func isKeyword(key string) bool {
	_, known := ajvKeywords[key]
	return known || slices.Contains(prototypeNames, key)
}

// truthy reports whether a value counts as true in JavaScript.
func truthy(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case json.Number:
		number, _ := v.Float64()
		return number != 0
	}
	return true
}

// A nesting is the depth of a schema, and whether the code that Ajv generates for it stops at the
// first error.
type nesting struct {
	depth             int
	stopsAtFirstError bool
}

// deeper returns a nesting that is deeper by a number of levels.
func (n nesting) deeper(levels int) nesting {
	return nesting{n.depth + levels, n.stopsAtFirstError}
}

// amongSeveral returns the nesting of one of several consecutive schemas or keywords.
func (n nesting) amongSeveral(several int) nesting {
	if n.stopsAtFirstError {
		return n.deeper(several)
	}
	return n
}

// schema compiles the schema at path.
func (c *schemaCompiler) schema(schema any, path []string, at nesting) (ok bool) {
	s, isObject := schema.(map[string]any)
	if c.schemaCount++; c.schemaCount > maxCompiled {
		return c.fail(nil, "has more than "+strconv.Itoa(maxCompiled)+
			" schemas, with references followed")
	}
	switch {
	case at.depth > maxCompiledDepth:
		return c.fail(path, "nests too deep, with references followed")
	case schema == nil:
		return c.fail(path, "is not a schema")
	case !isObject || isTrivial(s):
		return true
	case truthy(s["$async"]):
		return c.fail(appendPath(path, "$async"), "is refused: clients do not wait for a validator")
	case truthy(s["$id"]): // withoutIdentifiers has removed identifiers that are strings
		return c.fail(appendPath(path, "$id"), "is not a string, or not in a schema")
	}
	keys := slices.Sorted(maps.Keys(s))
	for _, key := range keys {
		if accepts := ajvKeywords[key]; accepts != nil {
			if want := accepts(s[key]); want != "" {
				return c.fail(appendPath(path, key), "is not "+want)
			}
		}
	}
	if _, ok := s["nullable"]; ok {
		types, _ := s["type"].([]any)
		if text, _ := s["type"].(string); text != "" {
			types = []any{text}
		}
		if len(types) == 0 {
			return c.fail(appendPath(path, "nullable"), "is present without a type")
		}
		if s["nullable"] == false && slices.Contains(types, any("null")) {
			return c.fail(appendPath(path, "nullable"), "contradicts the type")
		}
	}
	at = at.deeper(schemaDepth).amongSeveral(len(keys))
	for _, key := range keys {
		if !c.keyword(s, key, appendPath(path, key), at) {
			return false
		}
	}
	return true
}

// keyword compiles a keyword of a schema and its subschemas. The function in ajvKeywords has
// accepted the value.
func (c *schemaCompiler) keyword(s map[string]any, key string, path []string,
	at nesting) (ok bool) {
	switch key {
	case "$ref":
		return c.ref(s[key].(string), path, at)
	case "pattern":
		return c.pattern(s[key].(string), path)
	case "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum":
		switch format, ok := s["format"].(string); {
		case !ok:
			return c.fail(path, "is present without a format")
		case slices.Contains(formatsWithoutOrder, format):
			return c.fail(path, "is present with the format "+format+", whose values have no order")
		}
	case "patternProperties":
		many := schemasByName(s[key])
		rest, compiled := s["additionalProperties"]
		compiled = compiled && !isTrivial(rest)
		for _, schema := range many {
			compiled = compiled || !isTrivial(schema)
		}
		if compiled { // otherwise Ajv ignores the patterns
			for _, name := range slices.Sorted(maps.Keys(many)) {
				if !c.pattern(name, appendPath(path, name)) {
					return false
				}
			}
		}
		return c.checkBranches(len(many), path) &&
			c.schemaMap(many, path, at.amongSeveral(len(many)))
	case "properties":
		many := schemasByName(s[key])
		return c.schemaMap(many, path, at.amongSeveral(len(many)))
	case "dependencies":
		many := maps.Clone(schemasByName(s[key]))
		at = at.amongSeveral(len(many))
		for _, name := range slices.Sorted(maps.Keys(many)) {
			if wantArray(many[name]) != "" {
				continue
			}
			if want := wantNames(many[name]); want != "" {
				return c.fail(appendPath(path, name), "is not "+want)
			}
			delete(many, name)
		}
		return c.schemaMap(many, path, at)
	case "anyOf", "oneOf", "allOf", "items":
		list, isArray := s[key].([]any)
		if !isArray {
			return c.schema(s[key], path, at)
		}
		// If a schema of an anyOf accepts every value, Ajv compiles none of the schemas, and does
		// not notice a null that follows.
		if n := slices.IndexFunc(list, isTrivial); key == "anyOf" && n >= 0 && list[n] != nil {
			return true
		}
		if key == "items" || key == "allOf" {
			at = at.amongSeveral(len(list))
		} else if at = at.deeper(len(list)); !c.checkBranches(len(list), path) {
			return false
		}
		for i, one := range list {
			if !c.schema(one, appendPath(path, strconv.Itoa(i)), at) {
				return false
			}
		}
	case "additionalItems":
		if _, isArray := s["items"].([]any); isArray {
			return c.schema(s[key], path, at)
		}
	case "if":
		then, hasThen := s["then"]
		or, hasElse := s["else"]
		if hasThen && !isTrivial(then) || hasElse && !isTrivial(or) {
			return c.schema(s[key], path, nesting{at.depth, true})
		}
	case "then", "else":
		if _, conditional := s["if"]; conditional {
			return c.schema(s[key], path, at)
		}
	case "not":
		return c.schema(s[key], path, nesting{at.depth, true})
	case "propertyNames", "contains", "additionalProperties":
		return c.schema(s[key], path, at)
	}
	return true
}

// schemasByName returns the members of an object that Ajv reads as schemas: all except __proto__.
func schemasByName(value any) map[string]any {
	many := value.(map[string]any)
	if _, ok := many["__proto__"]; ok {
		many = maps.Clone(many)
		delete(many, "__proto__")
	}
	return many
}

func (c *schemaCompiler) schemaMap(many map[string]any, path []string, at nesting) (ok bool) {
	if at.depth > maxCompiledDepth {
		return c.fail(path, "nests too deep, with references followed")
	}
	for _, name := range slices.Sorted(maps.Keys(many)) {
		if !c.schema(many[name], appendPath(path, name), at) {
			return false
		}
	}
	return true
}

func (c *schemaCompiler) checkBranches(n int, path []string) (ok bool) {
	return n <= maxBranches || c.fail(path, "has more than "+strconv.Itoa(maxBranches)+" schemas")
}

func (c *schemaCompiler) pattern(text string, path []string) (ok bool) {
	if problem := regexpProblem(text); problem != "" {
		return c.fail(path, "is not a regular expression of JavaScript ("+problem+")")
	}
	return true
}

// formatsWithoutOrder are the formats that ajv-formats checks but cannot compare. Ajv ignores
// unknown formats.
var formatsWithoutOrder = []string{
	"duration", "uri", "uri-reference", "uri-template", "url", "email", "hostname", "ipv4", "ipv6",
	"regex", "uuid", "json-pointer", "json-pointer-uri-fragment", "relative-json-pointer",
	"byte", "int32", "int64", "float", "double",
}

// metaSchemas are the identifiers of the schemas that are built into Ajv.
var metaSchemas = []string{"http://json-schema.org/draft-07/schema",
	"http://json-schema.org/schema"}

// ref compiles the target of a reference, unless Ajv has already compiled it and does not copy it.
func (c *schemaCompiler) ref(text string, path []string, at nesting) (ok bool) {
	text = normalRef(text)
	if slices.Contains(metaSchemas, text) {
		return true
	}
	to, known := c.targets[text]
	if !known {
		loc, problem := c.follow(text)
		if problem != "" {
			return c.fail(path, problem)
		}
		path := strings.Join(loc.path, "\x00")
		if _, seen := c.inline[path]; !seen {
			c.inline[path] = !hasReference(loc.value)
		}
		to = &refTarget{loc, c.inline[path]}
		c.targets[text] = to
	}
	if known && !to.inline || len(to.path) == 0 {
		return true // already compiled, or being compiled
	}
	if s, _ := to.value.(map[string]any); !to.inline && truthy(s["$async"]) {
		return c.fail(appendPath(to.path, "$async"),
			"is refused: clients do not wait for a validator")
	}
	at = at.deeper(refDepth)
	// a target that is not inlined becomes a separate function
	at.stopsAtFirstError = at.stopsAtFirstError && to.inline
	return c.schema(to.value, to.path, at)
}
