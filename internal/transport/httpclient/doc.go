// Package httpclient connects to MCP servers over HTTP. It implements [transport.Conn] for
// streamable HTTP with sessions ([DialStreamable]), without sessions ([DialStateless]), and for
// the HTTP+SSE transport of revision 2024-11-05 ([DialHTTPSSE]).
//
// A Conn retries a message only if it was certainly not executed or is idempotent, resumes broken
// streams of servers with sessions, and notices when the server has lost the session. It does not
// reconnect, choose a transport, or show header values and other secrets in errors.
//
// Locks: httpConn.mu guards the state of a Conn; goroutines.mu may be taken while it is held, never
// the reverse. None is held while a request is sent or a result is passed to Read.
package httpclient
