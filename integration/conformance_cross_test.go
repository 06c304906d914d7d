//go:build unix

package integration

import (
	"os"
	"strings"
	"testing"
)

// crossCells is the list of checks that cannot pass if the backend is of the other era than the suite, since they look
// at what only a backend of their own era could have chosen. Each line is
//
//	REVISION SCENARIO:CHECK reason
//
// where the revision is the suite's. An entry whose check passes makes the test fail: the list only shrinks.
const crossCells = "testdata/cross_cells.txt"

// exceptions are those of one suite, and which of them were needed. nil has none.
type exceptions map[exception]bool

type exception struct{ scenario, id string }

// cover says whether at is excepted, and remembers that it was asked.
func (e exceptions) cover(at place) bool {
	key := exception{at.scenario, at.id}
	_, listed := e[key]
	if listed {
		e[key] = true
	}
	return listed
}

// stale are the entries that nothing needed.
func (e exceptions) stale() []exception {
	var list []exception
	for entry, needed := range e {
		if !needed {
			list = append(list, entry)
		}
	}
	return list
}

// readExceptions reads those for the suites of an era.
func readExceptions(t testing.TB, era string) exceptions {
	t.Helper()
	text, err := os.ReadFile(crossCells)
	if err != nil {
		t.Fatal(err)
	}
	found := make(exceptions)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " ", 3)
		if len(fields) < 3 || strings.TrimSpace(fields[2]) == "" {
			t.Fatalf("%s: no reason: %s", crossCells, line)
		}
		scenario, id, ok := strings.Cut(fields[1], ":")
		if !ok {
			t.Fatalf("%s: no check: %s", crossCells, line)
		}
		if fields[0] == era {
			found[exception{scenario, id}] = false
		}
	}
	return found
}
