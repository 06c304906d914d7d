package backends

import (
	"maps"
	"strings"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// permitsCompletion reports whether the filters permit a request completion/complete. A template is
// looked at as it is written and with the values of the arguments in it, for the server answers
// what the resources are that this expands to. The value that is to be completed is not whole yet:
// it can be denied, but need not match what is allowed.
func permitsCompletion(f *config.Filters, m wire.Message) bool {
	params := m.Part(wire.PartParams)
	ref, _ := wire.Lookup(params, "ref")
	if name, _ := wire.Lookup(ref, "name"); name != nil && !f.Prompts.Permits(wire.Unquote(name)) {
		return false
	}
	literal, _ := wire.Lookup(ref, "uri")
	if literal == nil || f.Resources.IsZero() {
		return true
	}
	uri := wire.Unquote(literal)
	if !f.Resources.PermitsURI(uri) {
		return false
	}
	values, argument, ok := completionArguments(params)
	settled, err := catalog.ExpandTemplate(uri, values)
	if !ok || err != nil || len(values) > 0 && !f.Resources.PermitsURI(settled) {
		return false
	}
	maps.Copy(values, argument)
	asked, _ := catalog.ExpandTemplate(uri, values) // it is valid, as before
	return config.Filter{Deny: f.Resources.Deny}.PermitsURI(asked)
}

// completionArguments returns the arguments of a request completion/complete that have a value,
// and the argument that is to be completed. It reports false if they can be read in two ways.
func completionArguments(params []byte) (context, argument map[string]string, ok bool) {
	context, argument = map[string]string{}, map[string]string{}
	ok = true
	var name, value string
	membersOnce(params, &ok, func(key string, object []byte) {
		membersOnce(object, &ok, func(inner string, text []byte) {
			switch key + "." + inner {
			case "context.arguments":
				membersOnce(text, &ok, func(name string, value []byte) { context[name] = wire.Unquote(value) })
			case "argument.name":
				name = wire.Unquote(text)
			case "argument.value":
				value = wire.Unquote(text)
			}
		})
	})
	argument[name] = value
	return context, argument, ok
}

// membersOnce calls f with each member of an object. It sets ok to false if two of their names are
// the same but for the case, which some servers do not look at.
func membersOnce(object []byte, ok *bool, f func(key string, value []byte)) {
	seen := map[string]bool{}
	wire.Members(object, func(key string, value []byte, _ int) {
		lower := strings.ToLower(key)
		*ok = *ok && !seen[lower]
		seen[lower] = true
		f(key, value)
	})
}
