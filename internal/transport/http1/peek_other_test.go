//go:build !unix

package http1

// peekable is not called, because every idleCheck is a readCheck.
func peekable(uintptr) bool { return true }
