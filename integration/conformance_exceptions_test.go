//go:build unix

package integration

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// exceptionsFile lists the checks that cannot pass if the backend is of another generation than
// the suite, because they check something that only a backend of the suite's generation could
// have chosen. Each line is
//
//	REVISION SCENARIO:CHECK reason
//
// where the revision is the suite's. An entry whose check passes makes the test fail, so that
// the list can only shrink.
const exceptionsFile = "testdata/cross_generation_exceptions.txt"

// exceptions are the exceptions of one suite; the value reports whether an entry was needed. nil
// is empty. Methods may be called concurrently.
type exceptions map[exception]*atomic.Bool

type exception struct{ scenario, id string }

// excepts reports whether the check has an exception, and marks the entry as needed.
func (e exceptions) excepts(at checkKey) bool {
	key := exception{at.scenario, at.id}
	needed, listed := e[key]
	if listed {
		needed.Store(true)
	}
	return listed
}

// stale returns the entries that were not needed.
func (e exceptions) stale() []exception {
	var list []exception
	for entry, needed := range e {
		if !needed.Load() {
			list = append(list, entry)
		}
	}
	return list
}

// readExceptions reads the exceptions of the suites of a revision.
func readExceptions(t testing.TB, revision string) exceptions {
	t.Helper()
	text, err := os.ReadFile(exceptionsFile)
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
			t.Fatalf("%s: no reason: %s", exceptionsFile, line)
		}
		scenario, id, ok := strings.Cut(fields[1], ":")
		if !ok {
			t.Fatalf("%s: no check: %s", exceptionsFile, line)
		}
		if fields[0] == revision {
			found[exception{scenario, id}] = new(atomic.Bool)
		}
	}
	return found
}
