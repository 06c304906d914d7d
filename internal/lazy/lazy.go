// Package lazy creates values at their first use. Values that are created at the start of the
// process would delay the first response to a client.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that returns the compiled regular expression, and compiles it at the
// first call. The function panics if text is not a regular expression.
func Regexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
