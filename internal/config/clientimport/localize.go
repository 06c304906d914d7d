package clientimport

import (
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/lazy"
)

// localize adapts a server to the environment of the gateway, whose working directory and system
// may differ from those of the client. It adds notes about differences that it cannot resolve.
func (f *foreignFile) localize(s *importedServer) {
	if s.command == "" {
		return
	}
	f.dropWindowsShell(s)
	f.resolveRelative(s)
	f.noteForeignPaths(s)
}

// dropWindowsShell replaces the commands cmd /c npx and npx.cmd by npx. It adds a note about any
// other program that exists only on Windows. On Windows it does nothing.
func (f *foreignFile) dropWindowsShell(s *importedServer) {
	if f.opts.OS == "windows" {
		return
	}
	before := s.command
	if name := programName(s.command); name == "cmd" || name == "cmd.exe" {
		i := slices.IndexFunc(s.args, func(arg string) bool { return !strings.HasPrefix(arg, "/") })
		if i < 1 || !strings.EqualFold(s.args[i-1], "/c") {
			f.note("%s: %q: %s is a Windows program: write the program that it starts", f.display,
				f.currentServer, s.command)
			return
		}
		before += " " + strings.Join(s.args[:i], " ")
		s.command, s.args = s.args[i], s.args[i+1:]
		if words := strings.Fields(s.command); len(words) > 1 {
			s.command, s.args = words[0], append(words[1:], s.args...)
		}
	}
	switch name := programName(s.command); {
	case name == "wsl" || name == "wsl.exe", name == "powershell" || name == "powershell.exe":
		f.note("%s: %q: %s is a Windows program: write the program that it starts", f.display,
			f.currentServer, s.command)
	case !strings.ContainsAny(s.command, `/\`) &&
		(strings.HasSuffix(name, ".cmd") || strings.HasSuffix(name, ".exe")):
		s.command = s.command[:len(s.command)-len(".cmd")]
	}
	if s.command != before && !strings.HasPrefix(before, s.command+".") {
		f.note("%s: %q: %s is only needed on Windows: the command is %s here", f.display,
			f.currentServer, before, s.command)
	}
}

// programName returns the last element of a Unix or Windows path in lower case.
func programName(command string) string {
	return strings.ToLower(command[strings.LastIndexAny(command, `/\`)+1:])
}

// resolveRelative makes cwd the project's folder, or a path in it, if the server has relative
// paths, because clients start the servers of a project in the project's folder. If the folder is
// unknown, it adds a note.
func (f *foreignFile) resolveRelative(s *importedServer) {
	relative := isRelative(s.command) || slices.ContainsFunc(s.args, isRelative)
	relativeCwd := s.cwd != "" && !filepath.IsAbs(s.cwd) && !strings.HasPrefix(s.cwd, "~") &&
		expand.Variables(s.cwd) == nil && !windowsPath().MatchString(s.cwd)
	folder := strings.ReplaceAll(f.projectDir, "$", "$$")
	switch {
	case relativeCwd && folder != "":
		s.cwd = filepath.Join(folder, s.cwd)
	case relativeCwd:
		f.note(
			"%s: %q: cwd %s is relative to where %s runs, and here to where the gateway is started: "+
				"write an absolute path", f.display, f.currentServer, s.cwd, f.client.Title)
	case relative && s.cwd == "" && folder != "":
		s.cwd = folder
	case relative && s.cwd == "":
		f.note(
			"%s: %q: a relative path depends on where %s runs, and here on where the gateway is started: "+
				"write an absolute path, or cwd", f.display, f.currentServer, f.client.Title)
	}
}

// isRelative reports whether a command or argument is clearly a relative path.
func isRelative(text string) bool {
	return text == "." || text == ".." || strings.HasPrefix(text, "./") ||
		strings.HasPrefix(text, "../") ||
		strings.HasPrefix(text, `.\`) || strings.HasPrefix(text, `..\`)
}

var (
	windowsPath     = lazy.Regexp(`^[A-Za-z]:[\\/]`)
	windowsVariable = lazy.Regexp(`%[A-Za-z_]\w*%`)
	innerHome       = lazy.Regexp(`[=:,]~/`)
)

// noteForeignPaths adds notes about paths and variables that only another system or a shell
// understands.
func (f *foreignFile) noteForeignPaths(s *importedServer) {
	check := func(what, text string) {
		switch {
		case f.opts.OS != "windows" && windowsPath().MatchString(text):
			f.note("%s: %q: %s is a Windows path: write the path on this machine", f.display,
				f.currentServer, what)
		case f.opts.OS != "windows" && windowsVariable().MatchString(text):
			f.note(
				"%s: %q: %s has %%VARIABLE%% of Windows, which is not expanded: write ${VARIABLE}",
				f.display, f.currentServer, what)
		case innerHome().MatchString(text),
			strings.HasPrefix(what, "env ") && strings.HasPrefix(text, "~/"):
			f.note("%s: %q: ~ in %s is not expanded: write ${HOME}", f.display, f.currentServer,
				what)
		}
	}
	check("command", s.command)
	check("cwd", s.cwd)
	for i, arg := range s.args {
		what := "an argument"
		if i > 0 && strings.HasPrefix(s.args[i-1], "-") {
			what = "argument " + node.ShowKey(s.args[i-1])
		}
		check(what, arg)
	}
	for _, e := range s.env {
		check("env "+node.ShowKey(e.name), e.value)
	}
}
