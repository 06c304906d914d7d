package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckRecursion(t *testing.T) {
	t.Parallel()
	a, b := file(t, "a.yaml", ""), file(t, "b.yaml", "")
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	down := func(chain string, sources ...string) string {
		t.Helper()
		for _, source := range sources {
			var err error
			if chain, err = checkRecursion(source, chain); err != nil {
				t.Fatalf("%s with the ancestors %q: %v", source, chain, err)
			}
		}
		return chain
	}
	refused := func(source, chain, why string) {
		t.Helper()
		if chain, err := checkRecursion(source, chain); err == nil ||
			!strings.Contains(err.Error(), "Loop detected: ") ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("%s: %q, %v", source, chain, err)
		}
	}
	const itself, further = "this backend is the gateway itself",
		"this backend is a gateway that has started this one indirectly"
	refused(a, down("", a), itself)
	refused(link, down("", a), itself)
	refused(a, down("", link), itself)
	refused(a, down("", a, b), further)
	refused(b, down("", a, b), itself)

	var others []string
	for range maxAncestors {
		// the same name, each in its own directory
		others = append(others, file(t, "other.yaml", ""))
	}
	refused(a, down("", others...), "has 8 ancestors")
	refused(a, strings.Repeat(",", 1000), "ancestors, each")

	// Paths that are not regular files are never recognized again, but are counted.
	refused(a, down("", os.DevNull, os.DevNull, "", "", os.DevNull, "none.yaml", "none.yaml",
		os.DevNull), "has 8 ancestors")
}

// A relative path means a different file in a different directory, and the same file in this
// directory.
func TestCheckRecursionByRelativePath(t *testing.T) {
	t.Chdir(filepath.Dir(file(t, "gateway.yaml", "")))
	chain, err := checkRecursion("gateway.yaml", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkRecursion("./gateway.yaml", chain); err == nil {
		t.Error("the file is not recognized by another path")
	}
	t.Chdir(filepath.Dir(file(t, "gateway.yaml", "")))
	if _, err := checkRecursion("gateway.yaml", chain); err != nil {
		t.Errorf("another file: %v", err)
	}
}

// A gateway that is its own descendant rejects all commands that start backends; serve also sends
// an error to its client. A value of the variable that a user may have set has no effect.
func TestBackendIsGatewayItself(t *testing.T) {
	path := file(t, "gateway.yaml", "listen: 127.0.0.1:0\nbackends: [{name: demo, embedded: demo}]")
	chain, err := checkRecursion(path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(ancestorsEnv, chain)
	for _, verb := range []string{"check", "tools", "call", "serve"} {
		args := []string{verb, "-c", path}
		if verb == "call" {
			args = append(args, "now")
		}
		c := runPiped(t, []string{discover, initialize}, args...)
		code, answers, stderr := c.end()
		if code != exitUsage || !strings.Contains(stderr, "Loop detected: ") {
			t.Errorf("%s: exit code %d, stderr %q", verb, code, stderr)
		}
		if verb != "serve" {
			if !strings.Contains(stderr,
				"hint: to run it as a child of a gateway anyway, unset MCP_GATEWAY_ABOVE") ||
				len(answers) != 0 {
				t.Errorf("%s: answers %q, stderr %q", verb, answers, stderr)
			}
		} else if len(answers) != 2 || !strings.Contains(answers[1], "Loop detected: ") ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("answers %q, stderr %q", answers, stderr)
		}
	}
}
