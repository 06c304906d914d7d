//go:build unix

package integration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestCLI runs testdata/script/*.txtar. In addition to testscript's own commands they have
//
//	exits CODE PROGRAM ARGS…   run the program and expect this exit code
//	jsonrpc FILE               each line of FILE (or stdout) is a JSON-RPC message
//	output PATTERN             stdout or stderr matches; ! output PATTERN: neither matches
//
// and the environment variable HELPER: the test binary, which takes the role that
// INTEGRATION_HELPER names (helper-mirror).
func TestCLI(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script", func() []string { return nil })
}

// runScripts runs the scripts in dir. env returns further environment variables for one script.
// Scripts may write secrets to secretFiles only.
func runScripts(t *testing.T, dir string, env func() []string, secretFiles ...string) {
	t.Helper()
	bin := filepath.Dir(gateway(t))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := newSetup(t, nil)
	testscript.Run(t, testscript.Params{
		Dir:         dir,
		WorkdirRoot: s.dir, // searched for secrets at the end
		Setup: func(e *testscript.Env) error {
			for _, name := range secretFiles {
				hasSecrets(filepath.Join(e.WorkDir, name))
			}
			home := filepath.Join(e.WorkDir, "home")
			if err := os.MkdirAll(home, 0o755); err != nil {
				return err
			}
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", home)
			e.Setenv("HELPER", exe)
			e.Setenv(markerEnv, string(s.marker))
			e.Vars = append(e.Vars, env()...)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"jsonrpc": jsonrpc,
			"output":  output,
		},
		ContinueOnError:     true,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	for _, name := range []string{"stdout", "stderr"} {
		for _, f := range everySecret.searchText(name, []byte(ts.ReadFile(name))) {
			ts.Fatalf("%v", f)
		}
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func jsonrpc(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: jsonrpc file")
	}
	lines := bytes.Split(bytes.TrimSuffix([]byte(ts.ReadFile(args[0])), []byte("\n")), []byte("\n"))
	for _, line := range lines {
		if err := checkJSONRPC(line); err != nil {
			ts.Fatalf("%v: %q", err, line)
		}
	}
}

func output(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: output pattern")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	matches := re.MatchString(ts.ReadFile("stdout")) || re.MatchString(ts.ReadFile("stderr"))
	switch {
	case matches && neg:
		ts.Fatalf("stdout or stderr matches %q", args[0])
	case !matches && !neg:
		ts.Fatalf("neither stdout nor stderr matches %q", args[0])
	}
}
