//go:build !linux

package main

// protect does nothing, because systems other than Linux have no /proc with the environment of a
// process.
func protect() {}
