// Package lazy makes values when they are needed first. A client waits for all that a process
// makes at its start.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles a regular expression at its first call and returns it. The function
// panics if the text is not a regular expression.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
