package backends

import (
	"maps"
	"strings"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// permitsCompletion reports whether the filters permit a completion/complete request. A template is
// checked as written and with the values of its arguments, because the server's response reveals
// the resources that the template expands to. The value to be completed is still incomplete: an
// expansion with this value must not match a deny glob, but need not match an allow glob. If there
// is a filter for resources, a template that cannot be expanded is refused, and so is one whose
// arguments are ambiguous (see membersOnce).
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
	asked, _ := catalog.ExpandTemplate(uri, values) // cannot fail: ExpandTemplate succeeded above
	return config.Filter{Deny: f.Resources.Deny}.PermitsURI(asked)
}

// completionArguments returns the arguments of a completion/complete request that have a value, and
// the argument to be completed. ok is false if the names of two members are ambiguous (see
// membersOnce).
func completionArguments(params []byte) (context, argument map[string]string, ok bool) {
	context, argument = map[string]string{}, map[string]string{}
	ok = true
	var name, value string
	membersOnce(params, &ok, func(key string, object []byte) {
		membersOnce(object, &ok, func(inner string, text []byte) {
			switch key + "." + inner {
			case "context.arguments":
				membersOnce(text, &ok,
					func(name string, value []byte) { context[name] = wire.Unquote(value) })
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

// membersOnce calls f with each member of an object. It sets ok to false if the names of two
// members differ at most in case, because some servers ignore case.
func membersOnce(object []byte, ok *bool, f func(key string, value []byte)) {
	seen := map[string]bool{}
	wire.Members(object, func(key string, value []byte, _ int) {
		lower := strings.ToLower(key)
		*ok = *ok && !seen[lower]
		seen[lower] = true
		f(key, value)
	})
}
