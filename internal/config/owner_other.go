//go:build !unix

package config

import "io/fs"

// writableWarning returns nothing where permissions are not those of Unix.
func writableWarning(string) []string { return nil }

// WritableByOthers returns nothing where permissions are not those of Unix.
func WritableByOthers(fs.FileInfo) string { return "" }
