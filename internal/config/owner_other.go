//go:build !unix

package config

import "io/fs"

// changeable returns nothing where permissions are not those of Unix.
func changeable(string) []string { return nil }

// ByOthers returns nothing where permissions are not those of Unix.
func ByOthers(fs.FileInfo) string { return "" }
