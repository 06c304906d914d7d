//go:build !unix

package httpserver

// maxDescriptors returns the limit of open file descriptors of the process; 0 = unknown.
func maxDescriptors() int { return 0 }
