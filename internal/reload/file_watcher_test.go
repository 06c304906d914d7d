//go:build unix

package reload

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A watcherTest runs a fileWatcher in a directory.
type watcherTest struct {
	*testing.T
	*fileWatcher
	dir string
}

// newWatcherTest watches these files in a new directory. Without prepare they contain "one".
func newWatcherTest(t *testing.T, prepare func(s *watcherTest), files ...string) *watcherTest {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &watcherTest{t, newFileWatcher(slog.New(slog.DiscardHandler)), dir}
	if prepare != nil {
		prepare(s)
	}
	for i, name := range files {
		files[i] = filepath.Join(dir, name)
		if prepare == nil {
			s.write(name, "one")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	s.watch(files)
	s.expectChange("the start")
	return s
}

func (s *watcherTest) path(name string) string { return filepath.Join(s.dir, name) }

func (s *watcherTest) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *watcherTest) write(name, text string) {
	s.Helper()
	s.must(os.WriteFile(s.path(name), []byte(text), 0o600))
}

func (s *watcherTest) rename(from, to string) {
	s.Helper()
	s.must(os.Rename(s.path(from), s.path(to)))
}

func (s *watcherTest) link(to, name string) {
	s.Helper()
	s.must(os.Symlink(to, s.path(name)))
}

// expectChange waits until a change is reported.
func (s *watcherTest) expectChange(what string) {
	s.Helper()
	select {
	case <-s.changed:
	case <-time.After(20 * time.Second):
		s.Fatalf("%s was not reported", what)
	}
}

// expectNoChange fails if a change is reported.
func (s *watcherTest) expectNoChange(what string) {
	s.Helper()
	select {
	case <-s.changed:
		s.Errorf("%s was reported", what)
	case <-time.After(3 * quietPeriod):
	}
}

func TestFileWatcherReportsEdits(t *testing.T) {
	for name, edit := range map[string]func(s *watcherTest){
		"overwritten":      func(s *watcherTest) { s.write("gateway.yaml", "two") },
		"mv":               func(s *watcherTest) { s.write("new", "two"); s.rename("new", "gateway.yaml") },
		"vim, with backup": func(s *watcherTest) { s.rename("gateway.yaml", "gateway.yaml~"); s.write("gateway.yaml", "two") },
		"truncated, then written": func(s *watcherTest) {
			s.must(os.Truncate(s.path("gateway.yaml"), 0))
			s.write("gateway.yaml", "two")
		},
		"removed, then there again": func(s *watcherTest) { s.must(os.Remove(s.path("gateway.yaml"))); s.write("gateway.yaml", "two") },
		"mode changed": func(s *watcherTest) {
			s.must(os.Chmod(s.path("gateway.yaml"), 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWatcherTest(t, nil, "gateway.yaml")
			for range 3 { // the replacement is also watched
				edit(s)
				s.expectChange(name)
				s.write("gateway.yaml", "one")
				s.expectChange("the next change")
			}
		})
	}
}

func TestFileWatcherReportsBurstOnce(t *testing.T) {
	t.Parallel()
	s := newWatcherTest(t, nil, "gateway.yaml")
	began := time.Now()
	for i := range 50 {
		s.write("new", fmt.Sprint(i))
		s.rename("new", "gateway.yaml")
	}
	s.expectChange("a burst")
	reports, last := 1, time.Now()
	for silent := false; !silent; {
		select {
		case <-s.changed:
			reports++
			last = time.Now()
		case <-time.After(3 * quietPeriod):
			silent = true
		}
	}
	// If the machine pauses this test for quietPeriod, one burst is reported as two.
	if bursts := max(int(last.Sub(began)/quietPeriod), 1); reports > bursts {
		t.Errorf(
			"50 changes in %v were reported %d times, but are at most %d bursts", last.Sub(began),
			reports, bursts,
		)
	}
}

func TestFileWatcherIgnoresOtherFiles(t *testing.T) {
	t.Parallel()
	s := newWatcherTest(t, nil, "gateway.yaml")
	s.write("other.yaml", "x")
	s.write(".gateway.yaml.swp", "x")
	s.must(os.Mkdir(s.path("state"), 0o700))
	s.expectNoChange("a change of another file")
}

// The watcher waits for a file that is missing for a short time, and then reports its replacement.
func TestFileWatcherWaitsForReplacement(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newWatcherTest(t, nil, "gateway.yaml")
	s.must(os.Remove(s.path("gateway.yaml")))
	s.expectNoChange("a file that is missing for a moment")
	s.write("gateway.yaml", "two")
	s.expectChange("the replacement")

	s.must(os.Remove(s.path("gateway.yaml")))
	s.expectChange("a removed file") // after replaceTimeout
	s.write("gateway.yaml", "three")
	s.expectChange("a file that was created again")
}

// A change is reported even if the file is written without pause.
func TestFileWatcherLimitsBurst(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newWatcherTest(t, nil, "gateway.yaml")
	began := time.Now()
	tick := time.NewTicker(quietPeriod / 5)
	defer tick.Stop()
	for time.Since(began) < 20*time.Second {
		select {
		case <-s.changed:
			return
		case <-tick.C:
			s.write("gateway.yaml", time.Now().String())
		}
	}
	t.Error("no change was reported")
}

// In a ConfigMap of Kubernetes the file is a link through ..data, which is replaced.
func TestFileWatcherReportsConfigMaps(t *testing.T) {
	t.Parallel()
	s := newWatcherTest(t, func(s *watcherTest) {
		s.must(os.Mkdir(s.path("..1"), 0o700))
		s.write("..1/gateway.yaml", "one")
		s.link("..1", "..data")
		s.link("..data/gateway.yaml", "gateway.yaml")
	}, "gateway.yaml")
	for i := 2; i < 5; i++ {
		next := fmt.Sprintf("..%d", i)
		s.must(os.Mkdir(s.path(next), 0o700))
		s.write(next+"/gateway.yaml", next)
		s.link(next, "..data_tmp")
		s.rename("..data_tmp", "..data")
		s.must(os.RemoveAll(s.path(fmt.Sprintf("..%d", i-1))))
		s.expectChange("the replacement of ..data")
		s.write(next+"/gateway.yaml", "within it")
		s.expectChange("a change of the target of the links")
	}
}

func TestFileWatcherFollowsLinks(t *testing.T) {
	t.Parallel()
	s := newWatcherTest(t, func(s *watcherTest) {
		s.must(os.MkdirAll(s.path("dotfiles/gw"), 0o700))
		s.must(os.MkdirAll(s.path("etc"), 0o700))
		s.write("dotfiles/gw/real.yaml", "one")
		s.link(s.path("dotfiles/gw/real.yaml"), "etc/gateway.yaml")
	}, "etc/gateway.yaml")
	s.write("dotfiles/gw/real.yaml", "two")
	s.expectChange("a change of the target")
	s.write("other", "x")
	s.must(os.Remove(s.path("etc/gateway.yaml")))
	s.link("../other", "etc/gateway.yaml")
	s.expectChange("another link")
	s.write("other", "y")
	s.expectChange("a change of its target")
}

// Some deployments replace the whole directory.
func TestFileWatcherReportsReplacedDirectory(t *testing.T) {
	t.Parallel()
	s := newWatcherTest(t, func(s *watcherTest) {
		s.must(os.Mkdir(s.path("conf"), 0o700))
		s.write("conf/gateway.yaml", "one")
	}, "conf/gateway.yaml")
	s.must(os.Mkdir(s.path("next"), 0o700))
	s.write("next/gateway.yaml", "two")
	s.rename("conf", "old")
	s.rename("next", "conf")
	s.expectChange("a replaced directory")
	s.write("conf/gateway.yaml", "three")
	s.expectChange("a change in it")

	s.must(os.RemoveAll(s.path("conf")))
	s.must(os.Mkdir(s.path("conf"), 0o700))
	s.write("conf/gateway.yaml", "four")
	s.expectChange("a directory that was created again")
	s.write("conf/gateway.yaml", "five")
	s.expectChange("a change in it")
}

// The system does not report changes of a parent of the watched directories.
func TestFileWatcherReportsReplacedAncestor(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	s := newWatcherTest(t, func(s *watcherTest) {
		s.must(os.MkdirAll(s.path("release/conf"), 0o700))
		s.write("release/conf/gateway.yaml", "one")
		s.must(os.MkdirAll(s.path("next/conf"), 0o700))
		s.write("next/conf/gateway.yaml", "two")
	}, "release/conf/gateway.yaml")
	s.rename("release", "before")
	s.rename("next", "release")
	s.expectChange("a replaced ancestor")
	s.write("release/conf/gateway.yaml", "three")
	s.expectChange("a change in it")
}

func TestFileWatcherChangesFiles(t *testing.T) {
	t.Parallel()
	s := newWatcherTest(t, nil, "a.yaml", "b.pem")
	s.write("b.pem", "two")
	s.expectChange("the second file")
	s.watch([]string{s.path("a.yaml")})
	s.expectChange("the start of another watch")
	s.write("b.pem", "three")
	s.expectNoChange("a change of a file that is no longer watched")
}

func TestSymlinkChainEnds(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, link := range [][2]string{{"b", "a"}, {"a", "b"}, {"c/x", "c"}, {"nowhere/x", "d"}} {
		if err := os.Symlink(link[0], at(link[1])); err != nil {
			t.Fatal(err)
		}
	}
	if got := symlinkChain(at("a")); len(got) > maxLinks+1 || !slices.Contains(got, at("b")) {
		t.Errorf("a: %v", got)
	}
	if got := symlinkChain(at("c/y")); len(got) > maxLinks+1 {
		t.Errorf("c: %v", got)
	}
	if got := strings.Join(symlinkChain(at("d")), " "); got != at("d")+" "+at("nowhere") {
		t.Errorf("d: %v", got)
	}
}
