// Package sse reads streams of server-sent events within bounds.
package sse
