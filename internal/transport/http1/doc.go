// Package http1 sends requests to one server over plain HTTP/1.1. Its [RoundTripper] writes a
// request and reads the response on the goroutine of the caller. The Transport of net/http passes
// each request to a second goroutine and gets the response from a third one, which is a large part
// of the cost of a short request to a server on the same machine.
//
// Responses are parsed by net/http. There is no TLS, proxy, HTTP/2, upgrade of the protocol, or
// transparent compression.
//
// Locks: RoundTripper.mu guards the idle connections. No I/O is done while it is held.
// responseBody.mu is held while a body is read, so that Close can tell whether it may read the
// rest.
package http1
