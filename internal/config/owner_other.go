//go:build !unix

package config

import "io/fs"

// changeable returns nothing where permissions are not those of Unix.
func changeable(string) []string { return nil }

// WritableByOthers returns nothing where permissions are not those of Unix.
func WritableByOthers(fs.FileInfo) string { return "" }
