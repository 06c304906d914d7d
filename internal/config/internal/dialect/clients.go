// Package dialect describes the configuration files of other MCP clients: their paths, the
// references to variables that they support, and the keys of an entry under mcpServers. The loader
// uses the package because it accepts such entries in a file of the gateway; the importer uses it
// for the files of the clients.
package dialect

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Client is a known MCP client.
type Client struct {
	ID    string // suffix for a name that is taken
	Title string
	Key   string // key of the servers, a.b for b within a; "" = files are not supported
	// Files are the usual paths of the client's files: ./ in the project, ~/ in the home directory,
	// @/ in the settings folder of applications. * matches any name of a file or folder.
	Files    []string
	PathEnds []string // ends of the paths of its files in other folders
	Refs     RefForms // supported references to variables
	Timeout  Timeout
}

// Timeout describes the key timeout in a client's files.
type Timeout struct {
	Unit        time.Duration // 0 = unknown: the key is ignored
	LimitsStart bool          // limits the start instead of a call
}

// RefForms are the forms of references to variables that a client supports.
type RefForms struct {
	Braces   bool // ${VAR}, ${VAR:-default}
	Bare     bool // $VAR
	Prefixed bool // ${env:VAR}, ${input:id}, ${workspaceFolder}, ${userHome} and similar
	Plain    bool // {env:VAR}
	Double   bool // ${{ secrets.VAR }}
}

var (
	milliseconds = Timeout{Unit: time.Millisecond}
	seconds      = Timeout{Unit: time.Second}
)

// Clients are the known clients. Clients with the same format differ in the references that they
// support or in the unit of their timeouts. See docs/decisions/037-client-import.md.
var Clients = []Client{
	{
		ID: "claude-code", Title: "Claude Code", Key: "mcpServers",
		Files: []string{"./.mcp.json", "~/.claude.json"}, Refs: RefForms{Braces: true},
		Timeout: milliseconds,
	},
	{
		ID: "claude-desktop", Title: "Claude Desktop", Key: "mcpServers",
		Files: []string{"@/Claude/claude_desktop_config.json"},
	},
	{
		ID: "cursor", Title: "Cursor", Key: "mcpServers",
		Files: []string{"./.cursor/mcp.json", "~/.cursor/mcp.json"}, Refs: RefForms{Prefixed: true},
	},
	{
		ID: "vscode", Title: "VS Code", Key: "servers",
		Files: []string{
			"./.vscode/mcp.json", "@/Code/User/mcp.json", "@/Code/User/profiles/*/mcp.json",
			"@/Code - Insiders/User/mcp.json", "@/VSCodium/User/mcp.json",
			"~/.vscode-server/data/User/mcp.json",
		},
		Refs: RefForms{Prefixed: true},
	},
	{
		ID: "vscode-settings", Title: "VS Code", Key: "mcp.servers",
		Files: []string{
			"./.vscode/settings.json", "@/Code/User/settings.json",
			"@/Code - Insiders/User/settings.json",
			"@/VSCodium/User/settings.json",
		},
		Refs: RefForms{Prefixed: true},
	},
	{
		ID: "vscode-workspace", Title: "VS Code", Key: "settings.mcp.servers",
		PathEnds: []string{"/*.code-workspace"},
		Refs:     RefForms{Prefixed: true},
	},
	{
		ID: "antigravity", Title: "Antigravity", Key: "mcpServers",
		Files: []string{"~/.gemini/antigravity/mcp_config.json",
			"~/.gemini/config/mcp_config.json"},
	},
	{
		ID: "windsurf", Title: "Windsurf", Key: "mcpServers",
		Files:    []string{"~/.codeium/windsurf/mcp_config.json"},
		PathEnds: []string{"/mcp_config.json"},
		Refs:     RefForms{Prefixed: true},
	},
	{
		ID: "gemini", Title: "Gemini CLI", Key: "mcpServers",
		Files: []string{"./.gemini/settings.json", "~/.gemini/settings.json"},
		Refs:  RefForms{Braces: true, Bare: true}, Timeout: milliseconds,
	},
	{
		ID: "qwen", Title: "Qwen Code", Key: "mcpServers",
		Files: []string{"./.qwen/settings.json", "./.qwen/settings.local.json",
			"~/.qwen/settings.json"},
		Refs: RefForms{Braces: true, Bare: true}, Timeout: milliseconds,
	},
	{
		ID: "opencode", Title: "opencode", Key: "mcp",
		Files: []string{
			"./opencode.json", "./opencode.jsonc", "~/.config/opencode/opencode.json",
			"~/.config/opencode/opencode.jsonc",
		},
		Refs: RefForms{Plain: true},
	},
	{
		ID: "crush", Title: "Crush", Key: "mcp",
		Files: []string{"./crush.json", "./.crush.json", "~/.config/crush/crush.json"},
		Refs:  RefForms{Braces: true, Bare: true}, Timeout: Timeout{time.Second, true},
	},
	{
		ID: "codex", Title: "Codex", Key: "mcp_servers",
		Files: []string{"./.codex/config.toml", "~/.codex/config.toml"},
	},
	{
		ID: "cline", Title: "Cline", Key: "mcpServers",
		Files: []string{
			"~/.cline/data/settings/cline_mcp_settings.json",
			"@/*/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
		},
		PathEnds: []string{"/cline_mcp_settings.json"}, Timeout: seconds,
	},
	{
		ID: "kilo", Title: "Kilo Code", Key: "mcpServers",
		Files: []string{
			"./.kilocode/mcp.json",
			"@/*/User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json",
		},
		Refs: RefForms{Prefixed: true}, Timeout: seconds,
	},
	{
		ID: "roo", Title: "Roo Code", Key: "mcpServers",
		Files: []string{
			"./.roo/mcp.json",
			"@/*/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
		},
		PathEnds: []string{"/mcp_settings.json"}, Refs: RefForms{Prefixed: true}, Timeout: seconds,
	},
	{
		ID: "amazon-q", Title: "Amazon Q", Key: "mcpServers",
		Files: []string{
			"./.amazonq/mcp.json", "./.amazonq/default.json", "~/.aws/amazonq/mcp.json",
			"~/.aws/amazonq/default.json", "~/.aws/amazonq/agents/*.json",
			"~/.aws/amazonq/cli-agents/*.json",
		},
		Refs: RefForms{Prefixed: true}, Timeout: milliseconds,
	},
	{
		ID: "kiro", Title: "Kiro", Key: "mcpServers",
		Files: []string{"./.kiro/settings/mcp.json", "~/.kiro/settings/mcp.json"},
		Refs:  RefForms{Braces: true, Prefixed: true},
	},
	{
		ID: "copilot", Title: "Copilot CLI", Key: "mcpServers",
		Files: []string{"~/.copilot/mcp-config.json"},
		Refs:  RefForms{Braces: true}, Timeout: milliseconds,
	},
	{
		ID: "zed", Title: "Zed", Key: "context_servers",
		Files: []string{"./.zed/settings.json", "~/.config/zed/settings.json",
			"@/Zed/settings.json"},
	},
	{
		ID: "continue", Title: "Continue", Key: "mcpServers",
		Files: []string{
			"./.continue/mcpServers/*.yaml", "./.continue/mcpServers/*.yml",
			"~/.continue/config.yaml",
			"~/.continue/mcpServers/*.yaml", "~/.continue/mcpServers/*.yml",
		},
		Refs: RefForms{Double: true},
	},
	{
		ID: "goose", Title: "Goose", Key: "extensions",
		Files: []string{"~/.config/goose/config.yaml", "@/Block/goose/config/config.yaml"},
		Refs:  RefForms{Braces: true, Bare: true},
	},
	{
		ID: "amp", Title: "Amp", Key: "amp.mcpServers",
		Files: []string{"./.amp/settings.json", "~/.config/amp/settings.json"},
		Refs:  RefForms{Braces: true},
	},
	{
		ID: "lm-studio", Title: "LM Studio", Key: "mcpServers",
		Files: []string{"~/.lmstudio/mcp.json"},
	},
	{
		ID: "junie", Title: "Junie", Key: "mcpServers",
		Files: []string{"./.junie/mcp/mcp.json", "~/.junie/mcp/mcp.json"},
	},
	{
		ID: "factory", Title: "Factory", Key: "mcpServers",
		Files: []string{"./.factory/mcp.json", "~/.factory/mcp.json"}, Refs: RefForms{Braces: true},
	},
	{
		ID: "trae", Title: "Trae", Key: "mcpServers",
		Files: []string{"./.trae/mcp.json", "@/Trae/User/mcp.json"},
	},

	{Title: "Claude Code plugins", Files: []string{"~/.claude/plugins/installed_plugins.json"}},
	{Title: "Claude Desktop extensions", Files: []string{"@/Claude/extensions-installations.json"}},
	{Title: "Gemini CLI extensions",
		Files: []string{"~/.gemini/extensions/*/gemini-extension.json"}},
	{Title: "Crush, as a Bash script",
		Files: []string{"./crushrc", "./.crushrc", "~/.config/crush/crushrc"}},
	{Title: "Continue, old format", Files: []string{"~/.continue/config.json"}},
	{Title: "Mistral Vibe", Files: []string{"./.vibe/config.toml", "~/.vibe/config.toml"}},
	{Title: "Docker MCP Toolkit", Files: []string{"~/.docker/mcp/registry.yaml"}},
	{Title: "JetBrains AI Assistant", Files: []string{"@/JetBrains/*/options/llm.mcpServers.xml"}},

	// The last entry is for files with other names, because many clients use mcpServers.
	{ID: "other", Title: "MCP client", Key: "mcpServers",
		Refs: RefForms{Braces: true, Prefixed: true}},
}

// IsNamed reports whether c is a specific client instead of the entry for all other clients.
func (c *Client) IsNamed() bool { return c.ID != "other" }

// Matches reports whether path ends like the path of a file of c.
func (c *Client) Matches(path string) bool {
	for _, pattern := range c.Files {
		if _, ok := projectRoot(path, pattern[1:]); ok {
			return true
		}
	}
	return slices.ContainsFunc(c.PathEnds, func(pattern string) bool {
		_, ok := projectRoot(path, pattern)
		return ok
	})
}

// projectRoot returns the folder below which the path of file matches pattern, such as /a/b/*.json.
func projectRoot(file, pattern string) (folder string, ok bool) {
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

// CallTimeoutUnit returns the unit of the key timeout in the file at path; 0 = unknown, or
// timeout does not limit calls.
func CallTimeoutUnit(path string) time.Duration {
	for _, c := range Clients {
		if c.Matches(path) && !c.Timeout.LimitsStart {
			return c.Timeout.Unit
		}
	}
	return 0
}

// ProjectDir returns the folder of the project that the file at path belongs to; "" = the file
// belongs to the user, or is unknown. Clients for which the function accepts returns false are
// ignored.
func ProjectDir(path, home string, accepts func(Client) bool) string {
	for _, c := range Clients {
		for _, pattern := range c.Files {
			folder, ok := projectRoot(path, pattern[1:])
			switch {
			case !ok || !accepts(c):
			case pattern[0] != '.':
				return ""
			case home != "" && folder == filepath.Clean(home) &&
				slices.Contains(c.Files, "~"+pattern[1:]):
				return ""
			default:
				return folder
			}
		}
	}
	return ""
}

// AnyClient is an argument of ProjectDir that accepts all clients.
func AnyClient(Client) bool { return true }

// Workspace returns the value of ${workspaceFolder} in the file at path: the folder of its
// project if a client with such references uses the file, otherwise cwd.
func Workspace(path, cwd, home string) string {
	hasPrefixed := func(c Client) bool { return c.Refs.Prefixed }
	if folder := ProjectDir(path, home, hasPrefixed); folder != "" {
		return folder
	}
	if cwd == "" {
		cwd, _ = os.Getwd()
	}
	return cwd
}
