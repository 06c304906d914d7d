//go:build unix

package integration

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
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
	if err := raiseParallel(); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
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

// parallelShort is how many tests run at the same time with -short: they wait for processes most of the time.
const parallelShort = 4

// raiseParallel sets -parallel for -short, unless the command line does.
func raiseParallel() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given || !testing.Short() || runtime.GOMAXPROCS(0) >= parallelShort {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(parallelShort))
}
