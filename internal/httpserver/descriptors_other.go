//go:build !unix

package httpserver

// maxDescriptors returns how many files and connections the process may have open; 0 = it is not
// known.
func maxDescriptors() int { return 0 }
