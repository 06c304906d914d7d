package config

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// client is an MCP client whose files are known.
type client struct {
	id    string // suffix for a name that is taken
	title string
	key   string // that holds its servers, a.b for b within a; "" = its files are not read
	// files are their usual paths: ./ in the project, ~/ in the home directory, @/ where
	// applications keep settings. * stands for any name of one file or folder.
	files []string
	ends  []string // how the paths of its files end elsewhere
	refs  refs     // references to variables that it expands
	limit limit
	// is recognises the content of a file by more than the key; nil = the key is enough, unless
	// it is mcpServers, which many clients share.
	is   func(root, servers *yaml.Node) bool
	list bool // its servers are a list
	read func(entry) server
}

// limit is the meaning of the key timeout in a client's files.
type limit struct {
	unit  time.Duration // 0 = unknown: the key is left out
	start bool          // it limits the start, not a call
}

// refs are the ways to refer to variables that a client knows.
type refs struct {
	braces bool // ${VAR}, ${VAR:-default}
	bare   bool // $VAR
	prefix bool // ${env:VAR}, ${input:id}, ${workspaceFolder}, ${userHome} and the like
	plain  bool // {env:VAR}
	double bool // ${{ secrets.VAR }}
}

var (
	milliseconds = limit{unit: time.Millisecond}
	seconds      = limit{unit: time.Second}
)

// clients lists the known clients. Two that share a format differ in the references that they
// expand or in the unit of their time limits. See docs/decisions/037-client-import.md.
var clients = []client{
	{
		id: "claude-code", title: "Claude Code", key: "mcpServers",
		files: []string{"./.mcp.json", "~/.claude.json"}, refs: refs{braces: true}, limit: milliseconds,
		is: isClaudeCode, read: readCommon,
	},
	{
		id: "claude-desktop", title: "Claude Desktop", key: "mcpServers",
		files: []string{"@/Claude/claude_desktop_config.json"}, read: readCommon,
	},
	{
		id: "cursor", title: "Cursor", key: "mcpServers",
		files: []string{"./.cursor/mcp.json", "~/.cursor/mcp.json"}, refs: refs{prefix: true}, read: readCommon,
	},
	{
		id: "vscode", title: "VS Code", key: "servers",
		files: []string{
			"./.vscode/mcp.json", "@/Code/User/mcp.json", "@/Code/User/profiles/*/mcp.json",
			"@/Code - Insiders/User/mcp.json", "@/VSCodium/User/mcp.json",
			"~/.vscode-server/data/User/mcp.json",
		},
		refs: refs{prefix: true}, read: readCommon,
	},
	{
		id: "vscode-settings", title: "VS Code", key: "mcp.servers",
		files: []string{
			"./.vscode/settings.json", "@/Code/User/settings.json", "@/Code - Insiders/User/settings.json",
			"@/VSCodium/User/settings.json",
		},
		refs: refs{prefix: true}, read: readCommon,
	},
	{
		id: "vscode-workspace", title: "VS Code", key: "settings.mcp.servers", ends: []string{"/*.code-workspace"},
		refs: refs{prefix: true}, read: readCommon,
	},
	{
		id: "antigravity", title: "Antigravity", key: "mcpServers",
		files: []string{"~/.gemini/antigravity/mcp_config.json", "~/.gemini/config/mcp_config.json"},
		read:  readCommon,
	},
	{
		id: "windsurf", title: "Windsurf", key: "mcpServers",
		files: []string{"~/.codeium/windsurf/mcp_config.json"}, ends: []string{"/mcp_config.json"},
		refs: refs{prefix: true}, read: readCommon,
	},
	{
		id: "gemini", title: "Gemini CLI", key: "mcpServers",
		files: []string{"./.gemini/settings.json", "~/.gemini/settings.json"},
		refs:  refs{braces: true, bare: true}, limit: milliseconds, read: readGemini,
	},
	{
		id: "qwen", title: "Qwen Code", key: "mcpServers",
		files: []string{"./.qwen/settings.json", "./.qwen/settings.local.json", "~/.qwen/settings.json"},
		refs:  refs{braces: true, bare: true}, limit: milliseconds, read: readGemini,
	},
	{
		id: "opencode", title: "opencode", key: "mcp",
		files: []string{
			"./opencode.json", "./opencode.jsonc", "~/.config/opencode/opencode.json",
			"~/.config/opencode/opencode.jsonc",
		},
		refs: refs{plain: true}, is: isOpencode, read: readOpencode,
	},
	{
		id: "crush", title: "Crush", key: "mcp",
		files: []string{"./crush.json", "./.crush.json", "~/.config/crush/crush.json"},
		refs:  refs{braces: true, bare: true}, limit: limit{time.Second, true}, is: isCrush, read: readCommon,
	},
	{
		id: "codex", title: "Codex", key: "mcp_servers",
		files: []string{"./.codex/config.toml", "~/.codex/config.toml"}, read: readCodex,
	},
	{
		id: "cline", title: "Cline", key: "mcpServers",
		files: []string{
			"~/.cline/data/settings/cline_mcp_settings.json",
			"@/*/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
		},
		ends: []string{"/cline_mcp_settings.json"}, limit: seconds, read: readCommon,
	},
	{
		id: "kilo", title: "Kilo Code", key: "mcpServers",
		files: []string{
			"./.kilocode/mcp.json", "@/*/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json",
		},
		refs: refs{prefix: true}, limit: seconds, read: readCommon,
	},
	{
		id: "roo", title: "Roo Code", key: "mcpServers",
		files: []string{
			"./.roo/mcp.json", "@/*/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
		},
		ends: []string{"/mcp_settings.json"}, refs: refs{prefix: true}, limit: seconds, read: readCommon,
	},
	{
		id: "amazon-q", title: "Amazon Q", key: "mcpServers",
		files: []string{
			"./.amazonq/mcp.json", "./.amazonq/default.json", "~/.aws/amazonq/mcp.json",
			"~/.aws/amazonq/default.json", "~/.aws/amazonq/agents/*.json", "~/.aws/amazonq/cli-agents/*.json",
		},
		refs: refs{prefix: true}, limit: milliseconds, read: readCommon,
	},
	{
		id: "kiro", title: "Kiro", key: "mcpServers",
		files: []string{"./.kiro/settings/mcp.json", "~/.kiro/settings/mcp.json"},
		refs:  refs{braces: true, prefix: true}, read: readCommon,
	},
	{
		id: "copilot", title: "Copilot CLI", key: "mcpServers", files: []string{"~/.copilot/mcp-config.json"},
		refs: refs{braces: true}, limit: milliseconds, read: readCommon,
	},
	{
		id: "zed", title: "Zed", key: "context_servers",
		files: []string{"./.zed/settings.json", "~/.config/zed/settings.json", "@/Zed/settings.json"},
		read:  readZed,
	},
	{
		id: "continue", title: "Continue", key: "mcpServers", list: true,
		files: []string{
			"./.continue/mcpServers/*.yaml", "./.continue/mcpServers/*.yml", "~/.continue/config.yaml",
			"~/.continue/mcpServers/*.yaml", "~/.continue/mcpServers/*.yml",
		},
		is: isList, refs: refs{double: true}, read: readContinue,
	},
	{
		id: "goose", title: "Goose", key: "extensions",
		files: []string{"~/.config/goose/config.yaml", "@/Block/goose/config/config.yaml"},
		refs:  refs{braces: true, bare: true}, is: isGoose, read: readGoose,
	},
	{
		id: "amp", title: "Amp", key: "amp.mcpServers",
		files: []string{"./.amp/settings.json", "~/.config/amp/settings.json"}, refs: refs{braces: true},
		read: readCommon,
	},
	{
		id: "lm-studio", title: "LM Studio", key: "mcpServers", files: []string{"~/.lmstudio/mcp.json"},
		read: readCommon,
	},
	{
		id: "junie", title: "Junie", key: "mcpServers",
		files: []string{"./.junie/mcp/mcp.json", "~/.junie/mcp/mcp.json"}, read: readCommon,
	},
	{
		id: "factory", title: "Factory", key: "mcpServers",
		files: []string{"./.factory/mcp.json", "~/.factory/mcp.json"}, refs: refs{braces: true}, read: readCommon,
	},
	{
		id: "trae", title: "Trae", key: "mcpServers", files: []string{"./.trae/mcp.json", "@/Trae/User/mcp.json"},
		read: readCommon,
	},

	{title: "Claude Code plugins", files: []string{"~/.claude/plugins/installed_plugins.json"}},
	{title: "Claude Desktop extensions", files: []string{"@/Claude/extensions-installations.json"}},
	{title: "Gemini CLI extensions", files: []string{"~/.gemini/extensions/*/gemini-extension.json"}},
	{title: "Crush, as a Bash script", files: []string{"./crushrc", "./.crushrc", "~/.config/crush/crushrc"}},
	{title: "Continue, old format", files: []string{"~/.continue/config.json"}},
	{title: "Mistral Vibe", files: []string{"./.vibe/config.toml", "~/.vibe/config.toml"}},
	{title: "Docker MCP Toolkit", files: []string{"~/.docker/mcp/registry.yaml"}},
	{title: "JetBrains AI Assistant", files: []string{"@/JetBrains/*/options/llm.mcpServers.xml"}},

	// Last, for files of other names: mcpServers belongs to some client.
	{id: "other", title: "MCP client", key: "mcpServers", refs: refs{braces: true, prefix: true}, read: readCommon},
}

// recognise returns the client that a file belongs to, by its name and content, or by its
// content alone; nil = none that is read.
func recognise(path string, root *yaml.Node) *client {
	for i, c := range clients {
		if c.owns(path) && c.fits(root) {
			return &clients[i]
		}
	}
	for i, c := range clients {
		is := c.key != "mcpServers" || c.id == "other"
		if c.is != nil {
			is = c.is(root, within(root, c.key))
		}
		if is && c.key != "" && c.fits(root) {
			return &clients[i]
		}
	}
	return nil
}

// fits reports whether a file has servers where c has them.
func (c *client) fits(root *yaml.Node) bool {
	kind := yaml.MappingNode
	if c.list {
		kind = yaml.SequenceNode
	}
	servers := within(root, c.key)
	return servers != nil && servers.Kind == kind || c.id == "claude-code" && child(root, "projects") != nil
}

// within returns the value of a key, a.b for b within a; nil if it is not there. Settings may
// have a.b as one key, too.
func within(root *yaml.Node, key string) *yaml.Node {
	if key == "" {
		return nil
	}
	if n := child(root, key); n != nil {
		return n
	}
	if outer, inner, ok := strings.Cut(key, "."); ok {
		return within(child(root, outer), inner)
	}
	return nil
}

// own reports whether the client is known by name, and not as some client.
func (c *client) own() bool { return c.id != "other" }

// owns reports whether path ends like that of a file of c.
func (c *client) owns(path string) bool {
	for _, pattern := range c.files {
		if _, ok := above(path, pattern[1:]); ok {
			return true
		}
	}
	return slices.ContainsFunc(c.ends, func(pattern string) bool {
		_, ok := above(path, pattern)
		return ok
	})
}

// above returns the folder in which a file is at pattern, /a/b/*.json.
func above(file, pattern string) (folder string, ok bool) {
	absolute, err := filepath.Abs(file)
	if err != nil {
		absolute = file
	}
	parts := strings.Split(filepath.ToSlash(absolute), "/")
	at := len(parts) - strings.Count(pattern, "/")
	if at < 0 {
		return "", false
	}
	ok, _ = path.Match(pattern[1:], strings.Join(parts[at:], "/"))
	return cmp.Or(filepath.FromSlash(strings.Join(parts[:at], "/")), string(filepath.Separator)), ok
}

// callUnit returns the unit of timeout in the file at path, if it limits calls there.
func callUnit(path string) time.Duration {
	for _, c := range clients {
		if c.owns(path) && !c.limit.start {
			return c.limit.unit
		}
	}
	return 0
}

// projectOf returns the folder of the project that the file at path belongs to; "" if it belongs
// to the user, or nobody knows. Only files of clients for which of returns true count.
func projectOf(path, home string, of func(client) bool) string {
	for _, c := range clients {
		for _, pattern := range c.files {
			folder, ok := above(path, pattern[1:])
			switch {
			case !ok || !of(c):
			case pattern[0] != '.':
				return ""
			case home != "" && folder == filepath.Clean(home) && slices.Contains(c.files, "~"+pattern[1:]):
				return ""
			default:
				return folder
			}
		}
	}
	return ""
}

func anyClient(client) bool { return true }

// workspace returns the folder that ${workspaceFolder} means in the file at path: that of the
// project, if it is a file of a client that has such references, or else cwd.
func workspace(path, cwd, home string) string {
	if folder := projectOf(path, home, func(c client) bool { return c.refs.prefix }); folder != "" {
		return folder
	}
	if cwd == "" {
		cwd, _ = os.Getwd()
	}
	return cwd
}

// usualFiles returns the files of all clients that exist and have servers, those of the project
// first. It notes the others.
func (im *importer) usualFiles() []string {
	im.found = map[string]bool{}
	var files, empty, unread []string
	seen := map[string]bool{}
	for _, project := range []bool{true, false} {
		for _, c := range clients {
			for _, file := range im.existing(&c, project) {
				switch {
				case seen[file]:
				case c.key == "":
					unread = append(unread, c.title+" ("+im.shown(file)+")")
				case !im.concerns(file):
					empty = append(empty, im.shown(file))
				default:
					files = append(files, file)
					im.found[file] = project
				}
				seen[file] = true
			}
		}
	}
	if len(unread) > 0 {
		im.note("found and not read here: %s; add their servers to the configuration yourself", strings.Join(unread, ", "))
	}
	if len(empty) > 0 {
		im.out.empty = empty
		im.note("looked at, without servers: %s", strings.Join(empty, ", "))
	}
	return files
}

// existing returns the files of c that exist, of the project or of the user.
func (im *importer) existing(c *client, project bool) []string {
	var all []string
	isHome := im.opts.Home != "" && filepath.Clean(im.opts.Cwd) == filepath.Clean(im.opts.Home)
	for _, pattern := range c.files {
		if (pattern[0] == '.') != project || project && isHome && slices.Contains(c.files, "~"+pattern[1:]) {
			continue // in the home directory the user's file and the project's are one, the user's
		}
		folders := []string{im.opts.Cwd}
		rest := pattern[2:]
		switch {
		case pattern[0] == '@':
			folders = im.appDirs()
		case c.id == "codex" && !project:
			folders, rest = []string{im.codexHome()}, "config.toml"
		case pattern[0] == '~':
			folders = []string{im.opts.Home}
			if dir, _ := im.opts.Env("CLAUDE_CONFIG_DIR"); c.id == "claude-code" && dir != "" {
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

// regularFiles returns the regular files at pattern in folder.
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

// appDirs returns the folders where desktop applications keep their settings on Linux, macOS
// and Windows. Those of other systems do not exist.
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

// concerns reports whether a file that nobody named has servers, or is broken: most settings
// files have nothing about MCP.
func (im *importer) concerns(path string) bool {
	data, err := ReadFile(path)
	if err != nil {
		return true
	}
	root, bad := parseForeign(path, data)
	return bad != nil || root != nil && recognise(path, root) != nil
}
