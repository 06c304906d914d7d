package main

import (
	"strings"
	"testing"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/logs"
)

// check names what is left out of a backend that is well, and does not let one that
// lists a thousand bad tools fill the screen.
func TestCheckNamesWhatIsLeftOut(t *testing.T) {
	a := &app{mask: logs.NewMask("s3cret")}
	bad := catalog.Flaw{Item: "bad\x1b[2J s3cret", What: "its inputSchema is no object"}
	s := backends.Status{LeftOut: []catalog.Flaw{bad}}
	if got, want := a.remarks(s), "left out bad\uFFFD[2J ***: its inputSchema is no object"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 99 {
		s.LeftOut = append(s.LeftOut, bad)
	}
	if got := a.remarks(s); strings.Count(got, "inputSchema") != 10 || !strings.HasSuffix(got, "; left out 90 more") {
		t.Errorf("got %q", got)
	}
}
