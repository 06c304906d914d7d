package main

import (
	"strings"
	"testing"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/logging"
)

// check lists the omitted tools of a working backend, up to a limit.
func TestCheckListsOmittedTools(t *testing.T) {
	mask := logging.NewMask("s3cret")
	bad := catalog.Issue{Item: "bad\x1b[2J s3cret", Problem: "its inputSchema is not an object"}
	s := backends.Status{Findings: backends.Findings{Omitted: []catalog.Issue{bad}}}
	if got, want := remarks(mask, s), "left out bad\uFFFD[2J ***: its inputSchema is not an object"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 99 {
		s.Omitted = append(s.Omitted, bad)
	}
	if got := remarks(mask, s); strings.Count(got, "inputSchema") != 10 ||
		!strings.HasSuffix(got, "; left out 90 more entries") {
		t.Errorf("got %q", got)
	}
}

// SCHEMA-03, SCHEMA-04: check also lists the tools that model APIs may reject.
func TestSCHEMA03_SCHEMA04_CheckListsToolsThatModelsMayReject(t *testing.T) {
	mask := logging.NewMask()
	odd := catalog.Issue{
		Item: "t", Problem: "its inputSchema has anyOf at its top", Suspicious: true,
	}
	s := backends.Status{Findings: backends.Findings{
		Omitted:    []catalog.Issue{{Item: "bad", Problem: "it is not an object"}},
		Suspicious: []catalog.Issue{odd},
	}}
	if got, want := remarks(mask, s), "left out bad: it is not an object; t: its inputSchema has anyOf at its top"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 99 {
		s.Suspicious = append(s.Suspicious, odd)
	}
	if got := remarks(mask, s); strings.Count(got, "anyOf") != 10 ||
		!strings.HasSuffix(got, "; remarks about 90 more entries") {
		t.Errorf("got %q", got)
	}
}
