//go:build !unix

package config

import "io/fs"

// writableWarning returns nil on systems without Unix permissions.
func writableWarning(string) []string { return nil }

// readableWarning returns nil on systems without Unix permissions.
func readableWarning(string) []string { return nil }

// WritableByOthers returns "" on systems without Unix permissions.
func WritableByOthers(fs.FileInfo) string { return "" }
