// Package lazy makes values when they are needed first. A client waits for all that a process
// makes at its start.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that returns the regular expression of a text, which is compiled by its first call.
// That panics if the text is none.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
