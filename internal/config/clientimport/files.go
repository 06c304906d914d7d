package clientimport

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/config/internal/dialect"

	"mcpgateway/internal/config/internal/node"

	"mcpgateway/internal/config"

	"go.yaml.in/yaml/v3"
)

// A format describes the files of a client.
type format struct {
	// is recognizes the content of a file; nil = the key is sufficient, unless it is mcpServers,
	// which many clients use.
	is   func(root, servers *yaml.Node) bool
	list bool // servers are a list, not a mapping
	read func(entry) importedServer
}

// formats has the special formats, by the ID of the client. The default is a mapping of entries
// for readCommon.
var formats = map[string]format{
	"claude-code": {is: isClaudeCode, read: readCommon},
	"gemini":      {read: readGemini},
	"qwen":        {read: readGemini},
	"opencode":    {is: isOpencode, read: readOpencode},
	"crush":       {is: isCrush, read: readCommon},
	"codex":       {read: readCodex},
	"zed":         {read: readZed},
	"continue":    {is: isList, list: true, read: readContinue},
	"goose":       {is: isGoose, read: readGoose},
}

// formatOf returns the format of the files of c.
func formatOf(c *dialect.Client) format {
	if f, ok := formats[c.ID]; ok {
		return f
	}
	return format{read: readCommon}
}

// recognize returns the client of a file, by its name and content, or by its content alone; nil =
// unknown.
func recognize(path string, root *yaml.Node) *dialect.Client {
	for i, c := range dialect.Clients {
		if c.Matches(path) && fits(&c, root) {
			return &dialect.Clients[i]
		}
	}
	for i, c := range dialect.Clients {
		is := c.Key != "mcpServers" || c.ID == "other"
		if f := formatOf(&c); f.is != nil {
			is = f.is(root, lookUpPath(root, c.Key))
		}
		if is && c.Key != "" && fits(&c, root) {
			return &dialect.Clients[i]
		}
	}
	return nil
}

// fits reports whether a file has servers under the key of c.
func fits(c *dialect.Client, root *yaml.Node) bool {
	kind := yaml.MappingNode
	if formatOf(c).list {
		kind = yaml.SequenceNode
	}
	servers := lookUpPath(root, c.Key)
	return servers != nil && servers.Kind == kind ||
		c.ID == "claude-code" && node.Child(root, "projects") != nil
}

// lookUpPath returns the value of a key, a.b for b within a; nil = none. Settings may also have
// a.b as a single key.
func lookUpPath(root *yaml.Node, key string) *yaml.Node {
	if key == "" {
		return nil
	}
	if n := node.Child(root, key); n != nil {
		return n
	}
	if outer, inner, ok := strings.Cut(key, "."); ok {
		return lookUpPath(node.Child(root, outer), inner)
	}
	return nil
}

// usualFiles returns the existing files of all clients that contain servers, those of the project
// first. It adds notes about the others.
func (im *importer) usualFiles() []string {
	im.foundFiles = map[string]bool{}
	var files, empty, unread []string
	seen := map[string]bool{}
	for _, project := range []bool{true, false} {
		for _, c := range dialect.Clients {
			for _, file := range im.existingFiles(&c, project) {
				switch {
				case seen[file]:
				case c.Key == "":
					unread = append(unread, c.Title+" ("+im.displayPath(file)+")")
				case !im.hasServers(file):
					empty = append(empty, im.displayPath(file))
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
func (im *importer) existingFiles(c *dialect.Client, project bool) []string {
	var all []string
	isHome := im.opts.Home != "" && filepath.Clean(im.opts.Cwd) == filepath.Clean(im.opts.Home)
	for _, pattern := range c.Files {
		if (pattern[0] == '.') != project ||
			project && isHome && slices.Contains(c.Files, "~"+pattern[1:]) {
			continue // in the home directory, a file of both belongs to the user
		}
		folders := []string{im.opts.Cwd}
		rest := pattern[2:]
		switch {
		case pattern[0] == '@':
			folders = im.appDirs()
		case c.ID == "codex" && !project:
			folders, rest = []string{im.codexHome()}, "config.toml"
		case pattern[0] == '~':
			folders = []string{im.opts.Home}
			if dir, _ := im.opts.Env("CLAUDE_CONFIG_DIR"); c.ID == "claude-code" && dir != "" {
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

func (im *importer) codexHome() string {
	if dir, _ := im.opts.Env("CODEX_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(im.opts.Home, ".codex")
}

// appDirs returns the settings folders of desktop applications on Linux, macOS and Windows. Those
// of other systems usually do not exist.
func (im *importer) appDirs() []string {
	var dirs []string
	if dir, _ := im.opts.Env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		dirs = append(dirs, dir)
	}
	if im.opts.Home != "" {
		dirs = append(dirs,
			filepath.Join(im.opts.Home, ".config"),
			filepath.Join(im.opts.Home, "Library", "Application Support"))
	}
	if dir, _ := im.opts.Env("APPDATA"); dir != "" {
		dirs = append(dirs, dir)
	}
	return dirs
}

// hasServers reports whether a file that the user did not name contains servers or cannot be
// parsed. Most settings files have no MCP servers.
func (im *importer) hasServers(path string) bool {
	data, err := config.ReadFile(path)
	if err != nil {
		return true
	}
	root, bad := parseForeign(path, data)
	return bad != nil || root != nil && recognize(path, root) != nil
}
