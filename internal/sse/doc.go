// Package sse reads streams of server-sent events, with bounds on the size of an event and on the
// bytes that all streams buffer together. It does not know HTTP and does not reconnect.
package sse
