package clientimport

import (
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/secrets"
)

// reference matches all forms of references to variables, and any other dollar. The valid forms
// depend on the client.
var reference = lazy.Regexp(`` +
	`\$\{env:(?P<prefixed>[A-Za-z_]\w*)\}` +
	`|\$\{input:(?P<input>[^}]*)\}` +
	`|\$\{(?P<special>userHome|workspaceFolder|workspaceFolderBasename|pathSeparator|/)\}` +
	`|\$\{(?P<braced>[A-Za-z_]\w*(?::-[^}]*)?)\}` +
	`|\$(?P<bare>[A-Za-z_]\w*)` +
	`|\{env:(?P<plain>[A-Za-z_]\w*)\}` +
	`|\{file:(?P<file>[^{}]+)\}` +
	`|\$\{\{ *(?:secrets|inputs|env)\.(?P<double>[A-Za-z_][\w./-]*) *\}\}` +
	`|\$\{\{?(?P<other>[A-Za-z_][\w:. -]*)\}\}?` +
	`|\$\((?P<shell>[^()]+)\)` +
	`|\$`)

// translate converts a string of another client: references become ${VAR}, predefined variables
// become their value, and all other dollars are doubled.
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
		out.WriteString(f.convertReference(whole, group))
		end = m[1]
	}
	return out.String() + s[end:]
}

func (f *foreignFile) convertReference(whole string, group func(string) string) string {
	knows := f.client.Refs
	special, braced, bare := group("special"), group("braced"), group("bare")
	if expand.NameLength(special) > 0 && !knows.Prefixed {
		braced = special // ${userHome} is an ordinary variable for this client
	}
	switch {
	case group("prefixed") != "" && knows.Prefixed:
		return "${" + group("prefixed") + "}"
	case group("input") != "" && knows.Prefixed:
		return f.inputVariable(group("input"))
	case special == "userHome" && knows.Prefixed:
		return "${HOME}"
	case special != "" && knows.Prefixed:
		return f.predefined(special)
	case f.entryVariables[braced], f.entryVariables[bare]: // the program expands it
	case braced != "" && knows.Braces:
		return whole
	case bare != "" && knows.Bare:
		return "${" + bare + "}"
	case group("plain") != "" && knows.Plain:
		return "${" + group("plain") + "}"
	case group("file") != "" && knows.Plain:
		return "${file:" + f.besideFile(strings.ReplaceAll(group("file"), "$", "$$")) + "}"
	case simpleCommand().MatchString(group("shell")) && f.client.ID == "crush":
		f.note("%s: %q: $(…) runs a command of the shell in Crush, and is ${command:…} here, "+
			"which runs a program without a shell", f.display, f.currentServer)
		return "${command:" + group("shell") + "}"
	case group("double") != "" && knows.Double:
		return "${" + expand.VariableName(group("double")) + "}"
	default:
		f.noteLiteral(whole, group)
	}
	return strings.ReplaceAll(whole, "$", "$$")
}

// simpleCommand matches a command that means the same with and without a shell.
var simpleCommand = lazy.Regexp(`^[\w@%+=:,./-]+(?: +[\w@%+:,./-][\w@%+=:,./-]*)*$`)

// besideFile returns a path that is relative to the folder of the file as an absolute path.
func (f *foreignFile) besideFile(path string) string {
	if filepath.IsAbs(path) || strings.HasPrefix(path, "~") || windowsPath().MatchString(path) {
		return path
	}
	folder, err := filepath.Abs(filepath.Dir(f.path))
	if err != nil {
		return path
	}
	return filepath.Join(strings.ReplaceAll(folder, "$", "$$"), path)
}

// predefined returns the value of ${workspaceFolder} and similar variables.
func (f *foreignFile) predefined(word string) string {
	text, _ := expand.Predefined(word, f.workspace)
	if f.projectDir == "" && strings.HasPrefix(word, "workspace") {
		f.note("%s: %q: ${%s} is the folder that is open in %s; here it is always %s: "+
			"change it if you mean another one", f.display, f.currentServer, word, f.client.Title,
			text)
	}
	return strings.ReplaceAll(text, "$", "$$")
}

// noteLiteral adds a note about text that is used literally although it is a reference for other
// clients, unless the name in it looks like a secret.
func (f *foreignFile) noteLiteral(whole string, group func(string) string) {
	name := ""
	for _, form := range []string{"prefixed", "plain", "double", "braced", "special"} {
		if word, _, _ := strings.Cut(group(form), ":-"); expand.NameLength(word) > 0 {
			name = expand.VariableName(word)
		}
	}
	if bare := group("bare"); len(bare) > 1 && bare == strings.ToUpper(bare) &&
		expand.NameLength(bare) == len(bare) {
		name = bare
	}
	switch {
	case secrets.LooksSecret(name):
	case group("shell") != "" && f.client.ID == "crush":
		f.note(
			"%s: %q: $(…) runs a command in Crush, but is used literally here: write a variable, and set it",
			f.display, f.currentServer)
	case group("input") != "":
		f.note("%s: %q: ${input:…} is used literally: write ${VARIABLE}, and set it", f.display,
			f.currentServer)
	case group("other") != "":
		word, _, more := strings.Cut(group("other"), ":")
		if more {
			word += ":…"
		}
		f.note("%s: %q: ${%s} is used literally: write ${VARIABLE}, and set it", f.display,
			f.currentServer, word)
	case name != "":
		f.note(
			"%s: %q: %s is used literally, because %s does not expand it; for a variable, write ${%s}",
			f.display, f.currentServer, whole, f.client.Title, name)
	}
}

// inputVariable converts an input variable of VS Code into an environment variable.
func (f *foreignFile) inputVariable(id string) string {
	name, kind, in := expand.VariableName(id), "input", f.inputs[id]
	if secrets.IsShellVariable(name) { // variables such as PATH already have another meaning
		name = "INPUT_" + name
	}
	if in.password {
		kind = "password"
	}
	ref := "${" + name + "}"
	usable := in.fallback != "" && !in.password && in.kind != "command" &&
		!strings.ContainsAny(in.fallback, "{}") &&
		!secrets.IsSecret(id, in.fallback) && secrets.Find(id, in.fallback) == nil
	if usable {
		ref = "${" + name + ":-" + strings.ReplaceAll(in.fallback, "$", "$$") + "}"
	}
	more := ""
	switch {
	case in.kind == "command":
		more = " to the result of the command that VS Code runs for it"
	case len(in.options) > 0 && !slices.ContainsFunc(in.options, secrets.LooksSecret):
		more = " to one of " + strings.Join(in.options, ", ")
	}
	if usable {
		f.note("%s: %s %q is %s here; set %s%s to change it", f.display, kind, id, ref, name, more)
	} else {
		f.note("%s: %s %q is %s here; set it%s", f.display, kind, id, ref, more)
	}
	return ref
}
