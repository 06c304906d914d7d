package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// client is an MCP client whose files can be imported.
type client struct {
	id    string // suffix for a name that is taken
	title string
	key   string        // under which its servers stand
	ends  []string      // how the paths of its files end
	refs  refs          // what it reads as a reference to a variable
	limit time.Duration // what timeout counts in, if it limits a call; 0 = it does not, or nobody knows
	read  func(entry) server
}

// refs are the ways to refer to variables that a client knows.
type refs struct {
	braces bool // ${VAR}, ${VAR:-default}
	bare   bool // $VAR
	prefix bool // ${env:VAR}, ${input:id}, ${workspaceFolder}, ${userHome} and the like
	plain  bool // {env:VAR}
}

// clients lists those that are known. Two that share a way of writing differ in
// what they expand.
var clients = []client{
	{id: "claude-code", title: "Claude Code", key: "mcpServers", ends: []string{"/.mcp.json", "/.claude.json"}, refs: refs{braces: true}, limit: time.Millisecond, read: readCommon},
	{id: "claude-desktop", title: "Claude Desktop", key: "mcpServers", ends: []string{"/claude_desktop_config.json"}, read: readCommon},
	{id: "cursor", title: "Cursor", key: "mcpServers", ends: []string{"/.cursor/mcp.json"}, refs: refs{prefix: true}, read: readCommon},
	{id: "vscode", title: "VS Code", key: "servers", ends: []string{"/.vscode/mcp.json", "/Code/User/mcp.json"}, refs: refs{prefix: true}, read: readCommon},
	{id: "windsurf", title: "Windsurf", key: "mcpServers", ends: []string{"/mcp_config.json"}, refs: refs{prefix: true}, read: readCommon},
	{id: "gemini", title: "Gemini CLI", key: "mcpServers", ends: []string{"/.gemini/settings.json"}, refs: refs{braces: true, bare: true}, limit: time.Millisecond, read: readGemini},
	{id: "codex", title: "Codex", key: "mcp_servers", ends: []string{"/.codex/config.toml"}, read: readCodex},
	{id: "opencode", title: "opencode", key: "mcp", ends: []string{"/opencode.json", "/opencode.jsonc"}, refs: refs{plain: true}, read: readOpencode},
	// Last, for files of other names: what holds mcpServers is some client's.
	{id: "other", title: "MCP client", key: "mcpServers", refs: refs{braces: true, prefix: true}, read: readCommon},
}

// recognise tells whose file this is, by its name or else by the key its
// servers stand under; nil = nobody's.
func recognise(path string, root *yaml.Node) *client {
	for i, c := range clients {
		if c.owns(path) && (child(root, c.key) != nil || c.id == "claude-code") {
			return &clients[i]
		}
	}
	for i := len(clients) - 1; i >= 0; i-- {
		if child(root, clients[i].key) != nil {
			return &clients[i]
		}
	}
	return nil
}

// owns tells whether path ends like that of a file of c.
func (c *client) owns(path string) bool {
	absolute, err := filepath.Abs(path)
	if err != nil {
		absolute = path
	}
	slashed := filepath.ToSlash(absolute)
	return slices.ContainsFunc(c.ends, func(end string) bool { return strings.HasSuffix(slashed, end) })
}

// callUnit tells what timeout counts in, in the file at path.
func callUnit(path string) time.Duration {
	for _, c := range clients {
		if c.owns(path) {
			return c.limit
		}
	}
	return 0
}

// workspace is the folder that the file at path is about: the one above .vscode
// or .cursor, unless that is the user's home and the file about all, or else cwd.
func workspace(path, cwd, home string) string {
	if absolute, err := filepath.Abs(filepath.Dir(path)); err == nil {
		parent := filepath.Dir(absolute)
		if base := filepath.Base(absolute); (base == ".vscode" || base == ".cursor") && parent != filepath.Clean(home) {
			return parent
		}
	}
	if cwd == "" {
		cwd, _ = os.Getwd()
	}
	return cwd
}

// usualFiles returns the files of all clients that are there, the project's
// first: a project says more about what is wanted in it.
func (im *importer) usualFiles() []string {
	cwd, home := im.opts.Cwd, im.opts.Home
	projects := []string{
		filepath.Join(cwd, ".mcp.json"),
		filepath.Join(cwd, ".cursor", "mcp.json"),
		filepath.Join(cwd, ".vscode", "mcp.json"),
		filepath.Join(cwd, ".gemini", "settings.json"),
		filepath.Join(cwd, "opencode.json"),
		filepath.Join(cwd, "opencode.jsonc"),
	}
	var users []string
	if home != "" {
		users = append(users,
			filepath.Join(home, ".claude.json"),
			filepath.Join(home, ".cursor", "mcp.json"),
			filepath.Join(home, ".codeium", "windsurf", "mcp_config.json"),
			filepath.Join(home, ".gemini", "settings.json"),
			filepath.Join(home, ".config", "opencode", "opencode.json"),
		)
	}
	users = append(users, filepath.Join(im.codexHome(), "config.toml"))
	for _, dir := range im.appDirs() {
		users = append(users,
			filepath.Join(dir, "Claude", "claude_desktop_config.json"),
			filepath.Join(dir, "Code", "User", "mcp.json"))
	}
	im.found = map[string]bool{}
	var there []string
	for _, path := range slices.Concat(projects, users) {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && !slices.Contains(there, path) && im.concerns(path) {
			there = append(there, path)
			im.found[path] = !slices.Contains(users, path)
		}
	}
	return there
}

func (im *importer) codexHome() string {
	if dir, _ := im.opts.Env("CODEX_HOME"); dir != "" {
		return dir
	}
	return filepath.Join(im.opts.Home, ".codex")
}

// appDirs is where desktop applications keep their settings on Linux, macOS
// and Windows. The wrong ones do not exist.
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

// concerns tells whether a file that nobody named has servers in it at all, or
// is broken and to be reported: most settings files say nothing about MCP.
func (im *importer) concerns(path string) bool {
	data, err := readFile(path)
	if err != nil {
		return true
	}
	root, bad := parseForeign(path, data)
	return bad != nil || root != nil && recognise(path, root) != nil
}
