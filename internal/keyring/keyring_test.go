package keyring

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "oauth/https://example.com/mcp?x=1", "é", "a b",
		strings.Repeat("x", MaxName)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "a#1", "a\n", "\x00", "\xff",
		strings.Repeat("x", MaxName+1)} {
		if CheckName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
		if New(time.Second).Set(name, "v") == nil {
			t.Errorf("%q is stored", name)
		}
	}
}

func TestCheckSecretName(t *testing.T) {
	for _, name := range []string{"a", "GITHUB_TOKEN", "_1PW_TOKEN", "team/github.com-1",
		strings.Repeat("x", MaxSecretName)} {
		if err := CheckSecretName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "-a", "/a", "a b", "a:b", "a}", "a\n", "é",
		strings.Repeat("x", MaxSecretName+1)} {
		if CheckSecretName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestMaxValue(t *testing.T) {
	err := New(time.Second).Set("a", strings.Repeat("x", MaxValue+1))
	if err == nil || !strings.Contains(err.Error(), "at most 65536") {
		t.Error(err)
	}
}

// All names together fit into the item that lists them.
func TestIndexFits(t *testing.T) {
	if size := MaxSecrets * (MaxSecretName + 1); size > MaxValue {
		t.Errorf("the index can have %d bytes", size)
	}
}

// FuzzHead parses what another program may have stored.
func FuzzHead(f *testing.F) {
	f.Add("value")
	f.Add(headMark)
	f.Add(head{id: "a", count: 3, sum: "b"}.String())
	f.Add(headMark + "a:99999999999999999999:b")
	f.Add(headMark + "a:-1:b")
	f.Fuzz(func(t *testing.T, content string) {
		h, ok := parseHead(content)
		if ok != strings.HasPrefix(content, headMark) {
			t.Errorf("%q: %v", content, ok)
		}
		if h.count > MaxValue/partSize+1 {
			t.Errorf("%q has %d parts", content, h.count)
		}
	})
}

// TestNoSessionBus runs without a session bus: there is no keyring, and no program is started to
// create a bus.
func TestNoSessionBus(t *testing.T) {
	if _, err := os.Stat("/run/user"); err == nil {
		if entries, _ := os.ReadDir("/run/user"); len(entries) > 0 {
			t.Skip("the machine has a session bus")
		}
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := New(time.Second).Get("a"); !errors.Is(err, ErrUnavailable) ||
		!strings.Contains(err.Error(), "no D-Bus session bus") {
		t.Error(err)
	}
}

// inKeyring runs the calling test again in a new process whose environment is extended by env, and
// returns true in that process.
func inKeyring(t *testing.T, env []string) bool {
	t.Helper()
	const mark = "TEST_IN_KEYRING"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.count", "1")
	cmd.Env = slices.Concat(os.Environ(), env, []string{mark + "=" + t.Name()})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
