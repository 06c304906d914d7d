package clientimport

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/internal/dialect"
)

// usualFiles returns the existing files of all clients that contain servers or cannot be read,
// first the files of the project. It adds notes about existing files without servers and about
// files of clients that are not supported.
func (im *importer) usualFiles() []string {
	im.foundFiles = map[string]bool{}
	var files, empty, unread []string
	seen := map[string]bool{}
	for _, project := range []bool{true, false} {
		for _, c := range dialect.Clients {
			for _, file := range im.opts.existingFiles(&c, project) {
				switch {
				case seen[file]:
				case c.Key == "":
					unread = append(unread, c.Title+" ("+im.opts.displayPath(file)+")")
				case !hasServers(file):
					empty = append(empty, im.opts.displayPath(file))
				default:
					files = append(files, file)
					im.foundFiles[file] = project
				}
				seen[file] = true
			}
		}
	}
	if len(unread) > 0 {
		im.note("found, but not supported: %s; add their servers to the configuration yourself",
			strings.Join(unread, ", "))
	}
	if len(empty) > 0 {
		im.result.filesWithoutServers = empty
		im.note("files without servers: %s", strings.Join(empty, ", "))
	}
	return files
}

// existingFiles returns the existing files of c, either of the project or of the user.
func (o Options) existingFiles(c *dialect.Client, project bool) []string {
	var all []string
	isHome := o.Home != "" && filepath.Clean(o.Cwd) == filepath.Clean(o.Home)
	for _, pattern := range c.Files {
		if (pattern[0] == '.') != project ||
			project && isHome && slices.Contains(c.Files, "~"+pattern[1:]) {
			continue // in the home directory, this file is the user's file
		}
		folders := []string{o.Cwd}
		rest := pattern[2:]
		switch {
		case pattern[0] == '@':
			folders = o.appDirs()
		case c.ID == "codex" && !project:
			folders, rest = []string{o.codexHome()}, "config.toml"
		case pattern[0] == '~':
			folders = []string{o.Home}
			if dir, _ := o.Env("CLAUDE_CONFIG_DIR"); c.ID == "claude-code" && dir != "" {
				folders = []string{dir}
			}
		}
		for _, folder := range folders {
			if folder != "" {
				all = append(all, regularFiles(folder, filepath.FromSlash(rest))...)
			}
		}
	}
	return all
}

// regularFiles returns the regular files that match pattern in folder.
func regularFiles(folder, pattern string) []string {
	paths := []string{filepath.Join(folder, pattern)}
	if strings.Contains(pattern, "*") {
		escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(folder)
		if filepath.Separator == '\\' {
			escaped = folder
		}
		paths, _ = filepath.Glob(filepath.Join(escaped, pattern))
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.Mode().IsRegular()
	})
}

func (o Options) codexHome() string {
	if dir, _ := o.Env("CODEX_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(o.Home, ".codex")
}

// appDirs returns the settings folders of desktop applications on Linux, macOS and Windows. On one
// system the folders of the other systems usually do not exist.
func (o Options) appDirs() []string {
	var dirs []string
	if dir, _ := o.Env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		dirs = append(dirs, dir)
	}
	if o.Home != "" {
		dirs = append(dirs,
			filepath.Join(o.Home, ".config"),
			filepath.Join(o.Home, "Library", "Application Support"))
	}
	if dir, _ := o.Env("APPDATA"); dir != "" {
		dirs = append(dirs, dir)
	}
	return dirs
}

// hasServers reports whether a file that the user did not name contains servers, or cannot be read
// or parsed. Most settings files have no MCP servers.
func hasServers(path string) bool {
	data, err := config.ReadFile(path)
	if err != nil {
		return true
	}
	root, bad := parseForeign(path, data)
	return bad != nil || root != nil && recognize(path, root) != nil
}
