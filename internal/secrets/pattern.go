package secrets

import (
	"regexp"
	"sync"
)

// pattern returns a regular expression that is compiled when it is needed first. Together these take
// a millisecond, and a client waits for a gateway to start.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
