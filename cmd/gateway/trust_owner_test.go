//go:build unix

package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Approvals that other users may have written are ignored, and the error has a hint.
func TestApprovalsWritableByOthers_F_SEC_2(t *testing.T) {
	type change struct {
		name string
		make func(path string) error
		want string
	}
	changes := []change{
		{
			"every user", func(path string) error { return os.Chmod(path, 0o722) },
			"can be written by every user",
		},
		{
			"sticky", func(path string) error { return os.Chmod(path, 0o777|os.ModeSticky) },
			"can be written by every user",
		},
		{"link", func(path string) error {
			to := filepath.Join(t.TempDir(), "real")
			if err := os.Rename(path, to); err != nil {
				return err
			}
			return os.Symlink(to, path)
		}, "is a link"},
	}
	if os.Geteuid() == 0 { // only root can change the owner of a file
		changes = append(changes, change{"owner",
			func(path string) error { return os.Chown(path, 54321, 54321) },
			"belongs to another user"},
			change{"group", func(path string) error {
				if err := os.Chown(path, -1, 54321); err != nil {
					return err
				}
				return os.Chmod(path, 0o720)
			}, "can be written by its group"},
		)
	}
	for _, c := range changes {
		for _, what := range []string{"record", "trust", "state"} {
			if c.name == "link" && what == "state" { // a link that belongs to the user is accepted
				continue
			}
			t.Run(c.name+" "+what, func(t *testing.T) {
				dir, _ := writeProject(t, demoText)
				expect(t, exitOK, "trust", "is approved")
				expect(t, exitOK, "check", "ok")
				store := trustStoreOf("")
				_, record, err := store.approvalOf(localFile, []byte(demoText))
				if err != nil {
					t.Fatal(err)
				}
				path := map[string]string{"record": record, "trust": store.dir,
					"state": filepath.Dir(store.dir)}[what]
				if err := c.make(path); err != nil {
					t.Fatal(err)
				}
				expect(
					t, exitUsage, "check", path+": "+c.want, "not count", "hint: ", path,
					"gateway trust",
				)
				if what == "record" {
					if _, out, _ := runPiped(t, nil, "trust",
						"--list").output(); strings.Contains(out, dir) {
						t.Errorf("listed: %s", out)
					}
					expect(t, exitOK, "trust", "is approved") // replaces it
					expect(t, exitOK, "check", "ok")
					return
				}
				expect(t, exitUsage, "trust", path+": "+c.want)
				expect(t, exitUsage, "trust --list", path+": "+c.want)
			})
		}
	}
}

// A state directory may be a link.
func TestStateDirIsLink_F_SEC_2(t *testing.T) {
	_, state := writeProject(t, demoText)
	if err := os.Symlink(t.TempDir(), filepath.Join(state, "mcp-gateway")); err != nil {
		t.Fatal(err)
	}
	expect(t, exitOK, "trust", "is approved")
	expect(t, exitOK, "check", "ok")
}

// A token file that other users can replace causes a warning.
func TestAutoTokenWritableByOthers_F_SEC_2(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o755: false, 0o777: true} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		a := &autoToken{log: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := a.readOrCreate(filepath.Join(dir, autoTokenFile)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(),
			"level=WARN msg=\"token replaceable by other users\""); got != want {
			t.Errorf("%v: %s", mode, &log)
		}
	}
}
