//go:build unix

package integration

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

var (
	packageDir string // integration/, which contains node_modules
	workDir    string // removed at the end
)

func TestMain(m *testing.M) {
	if role, ok := strings.CutPrefix(os.Getenv(helperEnv), "helper-"); ok {
		syscall.Exit(runHelper(role)) // not os.Exit, which under -race sleeps for a second
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
	if list := flag.Lookup("test.list"); list == nil || list.Value.String() == "" &&
		!testing.Short() {
		// Here instead of in the first test that needs it, so that go test's time limit starts
		// after the download.
		errNPM = installNPM(packageDir)
	}
	sampler, err := startProcessSampler(workDir, markerEnv+"="+filepath.Base(workDir))
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	code := m.Run()
	sampler.stop()
	return everySecret.finish(sampler, code,
		func(line string) { fmt.Fprintln(os.Stderr, "integration:", line) })
}

// parallelShort is the number of parallel tests with -short: they mostly wait for processes.
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
