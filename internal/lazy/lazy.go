// Package lazy creates values at their first use, because a client waits for everything that the
// process creates at its start.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that compiles a regular expression at its first call and returns it.
// The function panics if text is not a regular expression.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
