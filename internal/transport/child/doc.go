// Package child runs MCP servers as child processes and connects to them over their stdin and
// stdout, as MCP's stdio transport requires of clients.
//
// The package finds the program, explains why it cannot be started or how it ended, collects its
// stderr, and stops the process together with its descendants (package procgroup). It never
// restarts a process.
package child
