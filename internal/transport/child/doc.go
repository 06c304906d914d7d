// Package child runs MCP servers as child processes and connects to them over their stdin and
// stdout, as MCP's stdio transport requires of clients.
//
// The package finds the program, describes the reason for a failed start or for the end of the
// process, collects stderr, and stops the process together with its descendants (package
// procgroup). It never restarts a process.
package child
