//go:build unix

package integration

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

var (
	packageDir string // integration/, where node_modules is
	workDir    string // removed at the end
)

func TestMain(m *testing.M) {
	if part, ok := strings.CutPrefix(os.Getenv(partEnv), "play-"); ok {
		syscall.Exit(play(part)) // not os.Exit, which under -race sleeps for a second
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	flag.Parse()
	var err error
	if packageDir, err = os.Getwd(); err == nil {
		workDir, err = os.MkdirTemp("", "integration-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer os.RemoveAll(workDir)
	if list := flag.Lookup("test.list"); list == nil || list.Value.String() == "" && !testing.Short() {
		// Here and not in the first test that needs it, so that go test's time limit counts from after the download.
		errNPM = installNPM(packageDir)
	}
	return m.Run()
}
