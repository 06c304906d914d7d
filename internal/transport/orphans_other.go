//go:build !linux

package transport

// Adopt does nothing where processes cannot adopt.
func Adopt() (stop func()) { return func() {} }
