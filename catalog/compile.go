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

// Bounds of the outputSchema of a tool. Ajv compiles each schema into JavaScript, about 5,000 in a
// second, with a stack that ends at about twice maxCompiledDepth or maxBranches.
const (
	// maxCompiled bounds the schemas in one outputSchema. A schema counts once for each reference to it.
	maxCompiled = 10_000
	// maxCompiledDepth bounds how deep the JavaScript of one schema nests, with references followed.
	maxCompiledDepth = 1_200
	// schemaDepth is how many levels a schema in another one counts as, and refDepth a reference. Each
	// schema of an anyOf or a oneOf counts as one. So does, below not and if, where the JavaScript
	// ends at the first error, each schema of all lists and maps, and each keyword.
	schemaDepth = 2
	refDepth    = 8
	// maxBareRefs bounds the references in a row that lead to another one and nothing else.
	maxBareRefs = 400
	// maxBranches bounds the schemas of one anyOf, oneOf or patternProperties.
	maxBranches = 1_000
)

// A compiler finds out whether Ajv can compile a JSON Schema as the npm SDK has it done: by
// draft-07, whatever $schema says, with "strict" and "validateSchema" off, and with ajv-formats. It
// follows Ajv 8.20, which accepts more than the meta-schema does: it looks only at schemas that it
// needs, and not at unknown keywords.
//
// It accepts a schema only if that compiles inside of another schema, too, because package revision
// puts it into one for clients of earlier revisions.
type compiler struct {
	root     map[string]any
	anchors  map[string]place
	targets  map[string]*target // by the text of $ref
	inline   map[string]bool    // whether a place has no references in it, by its path
	compiled int

	at, problem string // the first fault
}

// A place is a value in a schema.
type place struct {
	value any
	path  []string
	data  bool // it is in the value of a keyword such as const
}

// A target is where a reference leads.
type target struct {
	place
	inline bool // it has no references itself, so that Ajv copies it to each place that refers to it
}

// notCompiled returns what a JSON Schema compiler does not accept in an object, as a path and a
// description; problem is "" if there is no such thing.
func notCompiled(schema []byte) (at, problem string) {
	c := compiler{anchors: make(map[string]place), targets: make(map[string]*target), inline: make(map[string]bool)}
	d := json.NewDecoder(bytes.NewReader(schema))
	d.UseNumber()
	if err := d.Decode(&c.root); err != nil {
		return "", "is not an object"
	}
	switch {
	case truthy(c.root["$async"]):
		c.fail([]string{"$async"}, "is refused: clients do not wait for a validator")
	case truthy(c.root["$id"]): // withoutIdentifiers leaves no text here
		c.fail([]string{"$id"}, "is not a string")
	case c.findAnchors(c.root, nil):
		c.schema(c.root, nil, nesting{})
	}
	return c.at, c.problem
}

func (c *compiler) fail(path []string, problem string) (ok bool) {
	var b strings.Builder
	for _, name := range path {
		b.WriteString("." + name)
	}
	c.at, c.problem = b.String(), problem
	return false
}

// below returns the path of a member. The result of a call does not share memory with that of another.
func below(path []string, name string) []string { return append(path[:len(path):len(path)], name) }

var anchor = lazy.Regexp(`^[A-Za-z_][-A-Za-z0-9._]*$`)

// Where schemas stand in a schema. In other members an object is a schema, too, unless they are data.
var (
	schemaLists = []string{"items", "allOf", "anyOf", "oneOf"}
	schemaMaps  = []string{"$defs", "definitions", "properties", "patternProperties", "dependencies"}
	dataMembers = []string{
		"default", "enum", "const", "required", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf",
		"maxLength", "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems",
		"maxProperties", "minProperties",
	}
)

// inherited are the names that each object of JavaScript has. Ajv takes them for keywords that it
// knows, for a list of schemas if the value is an array, and for schemas by name if it is an object.
var inherited = []string{
	"__proto__", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable",
	"toLocaleString", "toString", "valueOf",
	"__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__",
}

func hasSchemaList(key string) bool {
	return slices.Contains(schemaLists, key) || slices.Contains(inherited, key)
}

func hasSchemaMap(key string) bool {
	return slices.Contains(schemaMaps, key) || slices.Contains(inherited, key)
}

// findAnchors notes the anchors of all schemas in a schema. References do not find its own.
func (c *compiler) findAnchors(schema map[string]any, path []string) (ok bool) {
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if name, isText := schema[key].(string); isText {
			if !anchor().MatchString(name) {
				return c.fail(below(path, key), "is not an anchor")
			}
			if _, twice := c.anchors[name]; twice {
				return c.fail(below(path, key), "is there twice")
			}
			c.anchors[name] = place{value: schema, path: path}
		}
	}
	ok = true
	inside := func(value any, path []string) {
		if m, isObject := value.(map[string]any); ok && isObject {
			ok = c.findAnchors(m, path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(schema)) {
		path := below(path, key)
		switch list, isArray := schema[key].([]any); {
		case isArray && hasSchemaList(key):
			for i, one := range list {
				inside(one, below(path, strconv.Itoa(i)))
			}
		case hasSchemaMap(key):
			many, _ := schema[key].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(many)) {
				inside(many[name], below(path, name))
			}
		case !slices.Contains(dataMembers, key):
			inside(schema[key], path)
		}
	}
	return ok
}

// ajvKeywords are the keywords that Ajv compiles, with what it accepts as their values. It ignores all
// others.
var ajvKeywords = map[string]func(value any) (want string){
	"$ref": wantText, "format": wantText, "pattern": wantText,
	"minimum": wantNumber, "maximum": wantNumber, "exclusiveMinimum": wantNumber, "exclusiveMaximum": wantNumber,
	"multipleOf": wantNumber,
	"minLength":  wantNumber, "maxLength": wantNumber, "minItems": wantNumber, "maxItems": wantNumber,
	"minProperties": wantNumber, "maxProperties": wantNumber,
	"formatMinimum": wantText, "formatMaximum": wantText,
	"formatExclusiveMinimum": wantText, "formatExclusiveMaximum": wantText,
	"required": wantNames, "allOf": wantArray, "anyOf": wantArray, "oneOf": wantArray,
	"nullable": wantBool, "uniqueItems": wantBool,
	"properties": wantObject, "patternProperties": wantObject, "dependencies": wantObject,
	"not": wantSchema, "if": wantSchema, "then": wantSchema, "else": wantSchema,
	"propertyNames": wantSchema, "contains": wantSchema, "additionalProperties": wantSchema, "additionalItems": wantSchema,
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

func want[T any](v any, want string) string {
	if _, ok := v.(T); ok {
		return ""
	}
	return want
}

func wantText(v any) string   { return want[string](v, "a string") }
func wantNumber(v any) string { return want[json.Number](v, "a number") }
func wantBool(v any) string   { return want[bool](v, "true or false") }
func wantArray(v any) string  { return want[[]any](v, "an array") }

// wantNames accepts all that JavaScript can make texts of.
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

func wantObject(v any) string { return want[map[string]any](v, "an object") }

func wantSchema(v any) string {
	if _, isBool := v.(bool); isBool {
		return ""
	}
	return want[map[string]any](v, "a schema")
}

func isTypeName(v any) bool {
	switch v {
	case "null", "boolean", "object", "array", "number", "string", "integer":
		return true
	}
	return false
}

// isTrivial reports whether every value is valid by a schema as far as Ajv can tell at once, so that it
// does not compile it.
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

// isKeyword reports whether Ajv compiles a schema because of this keyword.
func isKeyword(key string) bool {
	_, known := ajvKeywords[key]
	return known || slices.Contains(inherited, key)
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

// A nesting is how deep a schema is compiled in others, and whether the JavaScript ends at its first
// error.
type nesting struct {
	depth int
	brief bool
}

// in returns the nesting of what is this many levels deeper.
func (n nesting) in(levels int) nesting { return nesting{n.depth + levels, n.brief} }

// among returns the nesting of one of several schemas or keywords in a row.
func (n nesting) among(several int) nesting {
	if n.brief {
		return n.in(several)
	}
	return n
}

// schema compiles a schema that stands at a path.
func (c *compiler) schema(schema any, path []string, at nesting) (ok bool) {
	s, isObject := schema.(map[string]any)
	if c.compiled++; c.compiled > maxCompiled {
		return c.fail(nil, "has more than "+strconv.Itoa(maxCompiled)+" schemas, with references followed")
	}
	switch {
	case at.depth > maxCompiledDepth:
		return c.fail(path, "nests too deep, with references followed")
	case schema == nil:
		return c.fail(path, "is not a schema")
	case !isObject || isTrivial(s):
		return true
	case truthy(s["$async"]):
		return c.fail(below(path, "$async"), "is refused: clients do not wait for a validator")
	case truthy(s["$id"]): // withoutIdentifiers leaves none in schemas
		return c.fail(below(path, "$id"), "is not a string, or not in a schema")
	}
	keys := slices.Sorted(maps.Keys(s))
	for _, key := range keys {
		if accepts := ajvKeywords[key]; accepts != nil {
			if want := accepts(s[key]); want != "" {
				return c.fail(below(path, key), "is not "+want)
			}
		}
	}
	if _, there := s["nullable"]; there {
		types, _ := s["type"].([]any)
		if text, _ := s["type"].(string); text != "" {
			types = []any{text}
		}
		if len(types) == 0 {
			return c.fail(below(path, "nullable"), "is there without a type")
		}
		if s["nullable"] == false && slices.Contains(types, any("null")) {
			return c.fail(below(path, "nullable"), "contradicts the type")
		}
	}
	at = at.in(schemaDepth).among(len(keys))
	for _, key := range keys {
		if !c.keyword(s, key, below(path, key), at) {
			return false
		}
	}
	return true
}

// keyword compiles a keyword of a schema, whose value is as ajvKeywords has it, and the schemas in it.
func (c *compiler) keyword(s map[string]any, key string, path []string, at nesting) (ok bool) {
	switch key {
	case "$ref":
		return c.ref(s[key].(string), path, at)
	case "pattern":
		return c.pattern(s[key].(string), path)
	case "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum":
		switch format, there := s["format"].(string); {
		case !there:
			return c.fail(path, "is there without a format")
		case slices.Contains(formatsWithoutOrder, format):
			return c.fail(path, "is there with the format "+format+", whose values have no order")
		}
	case "patternProperties":
		many := byName(s[key])
		rest, compiled := s["additionalProperties"]
		compiled = compiled && !isTrivial(rest)
		for _, schema := range many {
			compiled = compiled || !isTrivial(schema)
		}
		if compiled { // else Ajv does not look at the patterns
			for _, name := range slices.Sorted(maps.Keys(many)) {
				if !c.pattern(name, below(path, name)) {
					return false
				}
			}
		}
		return c.branches(len(many), path) && c.all(many, path, at.among(len(many)))
	case "properties":
		many := byName(s[key])
		return c.all(many, path, at.among(len(many)))
	case "dependencies":
		many := maps.Clone(byName(s[key]))
		at = at.among(len(many))
		for _, name := range slices.Sorted(maps.Keys(many)) {
			if wantArray(many[name]) != "" {
				continue
			}
			if want := wantNames(many[name]); want != "" {
				return c.fail(below(path, name), "is not "+want)
			}
			delete(many, name)
		}
		return c.all(many, path, at)
	case "anyOf", "oneOf", "allOf", "items":
		list, isArray := s[key].([]any)
		if !isArray {
			return c.schema(s[key], path, at)
		}
		// Of an anyOf Ajv compiles nothing if one is valid for every value, and sees no null behind that.
		if n := slices.IndexFunc(list, isTrivial); key == "anyOf" && n >= 0 && list[n] != nil {
			return true
		}
		if key == "items" || key == "allOf" {
			at = at.among(len(list))
		} else if at = at.in(len(list)); !c.branches(len(list), path) {
			return false
		}
		for i, one := range list {
			if !c.schema(one, below(path, strconv.Itoa(i)), at) {
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

// byName returns the schemas in an object that Ajv looks at.
func byName(value any) map[string]any {
	many := value.(map[string]any)
	if _, there := many["__proto__"]; there {
		many = maps.Clone(many)
		delete(many, "__proto__")
	}
	return many
}

func (c *compiler) all(many map[string]any, path []string, at nesting) (ok bool) {
	if at.depth > maxCompiledDepth {
		return c.fail(path, "nests too deep, with references followed")
	}
	for _, name := range slices.Sorted(maps.Keys(many)) {
		if !c.schema(many[name], below(path, name), at) {
			return false
		}
	}
	return true
}

func (c *compiler) branches(n int, path []string) (ok bool) {
	return n <= maxBranches || c.fail(path, "has more than "+strconv.Itoa(maxBranches)+" schemas")
}

func (c *compiler) pattern(text string, path []string) (ok bool) {
	if fault := patternFault(text); fault != "" {
		return c.fail(path, "is not a regular expression of JavaScript ("+fault+")")
	}
	return true
}

// formatsWithoutOrder are the formats that ajv-formats checks and cannot compare. Ajv ignores formats
// that it does not know.
var formatsWithoutOrder = []string{
	"duration", "uri", "uri-reference", "uri-template", "url", "email", "hostname", "ipv4", "ipv6", "regex", "uuid",
	"json-pointer", "json-pointer-uri-fragment", "relative-json-pointer", "byte", "int32", "int64", "float", "double",
}

// metaSchemas are what Ajv has from the beginning.
var metaSchemas = []string{"http://json-schema.org/draft-07/schema", "http://json-schema.org/schema"}

// ref compiles the schema to which a reference leads.
func (c *compiler) ref(text string, path []string, at nesting) (ok bool) {
	text = normalRef(text)
	if slices.Contains(metaSchemas, text) {
		return true
	}
	to, known := c.targets[text]
	if !known {
		place, problem := c.follow(text)
		if problem != "" {
			return c.fail(path, problem)
		}
		path := strings.Join(place.path, "\x00")
		if _, seen := c.inline[path]; !seen {
			c.inline[path] = !refers(place.value)
		}
		to = &target{place, c.inline[path]}
		c.targets[text] = to
	}
	if known && !to.inline || len(to.path) == 0 {
		return true // it is compiled, or is being compiled
	}
	if s, _ := to.value.(map[string]any); !to.inline && truthy(s["$async"]) {
		return c.fail(below(to.path, "$async"), "is refused: clients do not wait for a validator")
	}
	at = at.in(refDepth)
	at.brief = at.brief && to.inline // else it is a function by itself
	return c.schema(to.value, to.path, at)
}
