package config

import (
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"mcpgateway/internal/lazy"
	"mcpgateway/internal/secrets"
)

// reference matches every way to refer to a variable, and any other dollar.
// Which of them mean something is a matter of the client.
var reference = lazy.Regexp(`` +
	`\$\{env:(?P<prefixed>[A-Za-z_]\w*)\}` +
	`|\$\{input:(?P<input>[^}]*)\}` +
	`|\$\{(?P<special>userHome|workspaceFolder|workspaceFolderBasename|pathSeparator|/)\}` +
	`|\$\{(?P<braced>[A-Za-z_]\w*(?::-[^}]*)?)\}` +
	`|\$(?P<bare>[A-Za-z_]\w*)` +
	`|\{env:(?P<plain>[A-Za-z_]\w*)\}` +
	`|\$\{\{ *(?:secrets|inputs|env)\.(?P<double>[A-Za-z_][\w./-]*) *\}\}` +
	`|\$\{\{?(?P<other>[A-Za-z_][\w:. -]*)\}\}?` +
	`|\$\((?P<shell>[^()]+)\)` +
	`|\$`)

// translate turns a string of another client into ours: references become
// ${VAR}, every dollar that is none is doubled.
func (f *foreignFile) translate(s string) string {
	var out strings.Builder
	end := 0
	for _, m := range reference().FindAllStringSubmatchIndex(s, -1) {
		group := func(name string) string {
			i := 2 * reference().SubexpIndex(name)
			if m[i] < 0 {
				return ""
			}
			return s[m[i]:m[i+1]]
		}
		whole := s[m[0]:m[1]]
		out.WriteString(s[end:m[0]])
		out.WriteString(f.ours(whole, group))
		end = m[1]
	}
	return out.String() + s[end:]
}

func (f *foreignFile) ours(whole string, group func(string) string) string {
	knows := f.client.refs
	special, braced, bare := group("special"), group("braced"), group("bare")
	if nameLength(special) > 0 && !knows.prefix {
		braced = special // ${userHome} is a variable to the others
	}
	switch {
	case group("prefixed") != "" && knows.prefix:
		return "${" + group("prefixed") + "}"
	case group("input") != "" && knows.prefix:
		return f.input(group("input"))
	case special == "userHome" && knows.prefix:
		return "${HOME}"
	case special != "" && knows.prefix:
		return f.special(special)
	case f.own[braced], f.own[bare]: // the program expands it, from the environment that the entry sets
	case braced != "" && knows.braces:
		return whole
	case bare != "" && knows.bare:
		return "${" + bare + "}"
	case group("plain") != "" && knows.plain:
		return "${" + group("plain") + "}"
	case group("double") != "" && knows.double:
		return "${" + variable(group("double")) + "}"
	default:
		f.noteLiteral(whole, group)
	}
	return strings.ReplaceAll(whole, "$", "$$")
}

// special returns the text for ${workspaceFolder} and the like.
func (f *foreignFile) special(word string) string {
	text, _ := folder(word, f.workspace)
	if f.folder == "" && strings.HasPrefix(word, "workspace") {
		f.note("%s: %q: ${%s} is the folder that is open in %s; here it is always %s: "+
			"change it if you mean another one", f.shown, f.server, word, f.client.title, text)
	}
	return strings.ReplaceAll(text, "$", "$$")
}

// noteLiteral notes text that is a reference in other clients' files and stays as it is.
func (f *foreignFile) noteLiteral(whole string, group func(string) string) {
	name := ""
	for _, form := range []string{"prefixed", "plain", "double", "braced", "special"} {
		if word, _, _ := strings.Cut(group(form), ":-"); nameLength(word) > 0 {
			name = variable(word)
		}
	}
	if bare := group("bare"); len(bare) > 1 && bare == strings.ToUpper(bare) && nameLength(bare) == len(bare) {
		name = bare
	}
	switch {
	case secrets.Value(name):
	case group("shell") != "" && f.client.id == "crush":
		f.note("%s: %q: $(…) runs a command in Crush and stays as it is: write a variable, and set it", f.shown, f.server)
	case group("input") != "":
		f.note("%s: %q: ${input:…} stays as it is: write ${VARIABLE}, and set it", f.shown, f.server)
	case group("other") != "":
		word, _, more := strings.Cut(group("other"), ":")
		if more {
			word += ":…"
		}
		f.note("%s: %q: ${%s} stays as it is: write ${VARIABLE}, and set it", f.shown, f.server, word)
	case name != "":
		f.note("%s: %q: %s stays as it is, since %s does not expand it; if it means a variable, write ${%s}",
			f.shown, f.server, whole, f.client.title, name)
	}
}

// input turns a value that VS Code asks for into a variable.
func (f *foreignFile) input(id string) string {
	name, kind, in := variable(id), "input", f.inputs[id]
	if isPlain(name) { // PATH and the like are set to something else
		name = "INPUT_" + name
	}
	if in.password {
		kind = "password"
	}
	ref := "${" + name + "}"
	usable := in.fallback != "" && !in.password && in.kind != "command" && !strings.ContainsAny(in.fallback, "{}") &&
		!secrets.Pair(id, in.fallback) && secrets.Find(id, in.fallback) == nil
	if usable {
		ref = "${" + name + ":-" + strings.ReplaceAll(in.fallback, "$", "$$") + "}"
	}
	more := ""
	switch {
	case in.kind == "command":
		more = " to the result of the command that VS Code runs for it"
	case len(in.options) > 0 && !slices.ContainsFunc(in.options, secrets.Value):
		more = " to one of " + strings.Join(in.options, ", ")
	}
	if usable {
		f.note("%s: %s %q is %s here; set %s%s to change it", f.shown, kind, id, ref, name, more)
	} else {
		f.note("%s: %s %q is %s here; set it%s", f.shown, kind, id, ref, more)
	}
	return ref
}

// ownVariables returns the variables that a table sets, less those that it only passes on.
func ownVariables(table *yaml.Node) map[string]bool {
	own := map[string]bool{}
	for name, value := range children(table) {
		if nameLength(name) == len(name) && name != "" && !strings.Contains(value.Value, name) {
			own[name] = true
		}
	}
	return own
}

// keptForProgram returns arguments of another client's entry with $${X} in the place of ${X},
// where the entry sets X: mcp-remote and others expand it themselves.
func keptForProgram(args, env *yaml.Node) *yaml.Node {
	own := ownVariables(env)
	if len(own) == 0 || args.Kind != yaml.SequenceNode {
		return args
	}
	kept := *args
	kept.Content = nil
	for _, item := range args.Content {
		if n := deref(item); n.Kind == yaml.ScalarNode {
			changed := *n
			changed.Value = ownReference().ReplaceAllStringFunc(n.Value, func(whole string) string {
				if own[whole[2:len(whole)-1]] {
					return "$" + whole
				}
				return whole
			})
			item = &changed
		}
		kept.Content = append(kept.Content, item)
	}
	return &kept
}

var ownReference = lazy.Regexp(`\$\{[A-Za-z_]\w*\}`)

// refersTo lists the variables that a string of ours refers to.
func refersTo(s string) []string { return new(expander).names(s) }

// names lists the variables that a string refers to, also those in defaults. x is used up.
func (x *expander) names(s string) (names []string) {
	x.env = func(name string) (string, bool) {
		names = append(names, name)
		return "", true
	}
	x.expand(s)
	return names
}

// needs lists the variables without which a string of ours cannot be read.
func needs(s string) []string {
	var names []string
	x := expander{env: func(string) (string, bool) { return "", false }}
	x.expand(s)
	for _, t := range x.wrong {
		names = append(names, t.unset)
	}
	return names
}

// children yields the pairs of a mapping; of anything else, nothing.
func children(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, deref(n.Content[i+1])) {
				return
			}
		}
	}
}

// child is the value of a key, nil if it is not there or null.
func child(n *yaml.Node, key string) *yaml.Node {
	for name, value := range children(n) {
		if name == key && !isAbsent(value) {
			return value
		}
	}
	return nil
}

func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}
