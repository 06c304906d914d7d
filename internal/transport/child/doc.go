// Package child runs MCP servers as child processes and connects to their stdin and stdout.
package child
