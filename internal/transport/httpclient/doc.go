// Package httpclient connects to MCP servers over HTTP: Streamable HTTP with and without sessions, and
// the HTTP+SSE transport of revision 2024-11-05.
package httpclient
