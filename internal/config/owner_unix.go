//go:build unix

package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"mcpgateway/internal/text"
)

// writableWarning returns a warning if users other than the current user and root can change or
// replace a configuration file.
func writableWarning(path string) []string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	for _, name := range []string{real, filepath.Dir(real)} {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			continue
		}
		why := WritableByOthers(info)
		if info.IsDir() && info.Mode()&fs.ModeSticky != 0 { // others cannot replace a user's files
			why = foreignOwner(info, os.Geteuid())
		}
		if why != "" {
			what := "the file"
			if info.IsDir() {
				what = "its folder " + name
			}
			return []string{fmt.Sprintf("%s: %s %s: whoever changes it can start programs as you; "+
				"run chmod go-w %s, or chown it to yourself", path, what, why,
				text.ShellWord(name))}
		}
	}
	return nil
}

// readableWarning returns a warning if other users can read a file of env_file. If the file belongs
// to another user, such as root, its group may be the reason that the gateway can read it.
func readableWarning(path string) []string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case !ok:
	case int(st.Uid) != os.Geteuid() && mode&0o004 != 0:
		return []string{path + ": every user can read this file of env_file: run chmod o-r " +
			text.ShellWord(path)}
	case int(st.Uid) == os.Geteuid() && (mode&0o004 != 0 || mode&0o040 != 0 && st.Gid != st.Uid):
		return []string{path + ": other users can read this file of env_file: run chmod 600 " +
			text.ShellWord(path)}
	}
	return nil
}

// WritableByOthers returns the reason if users other than the current user and root can write a
// file or folder; "" = they cannot.
func WritableByOthers(info fs.FileInfo) string {
	return cmp.Or(foreignOwner(info, os.Geteuid()), writableBy(info))
}

// foreignOwner returns a text about the owner of a file; "" = the owner is the user uid or root.
func foreignOwner(info fs.FileInfo, uid int) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != uid && st.Uid != 0 {
		return "belongs to another user"
	}
	return ""
}

// writableBy describes the users, other than the owner, who can write a file; "" = none. A group
// with the same number as the owner is ignored, because on many systems it is the owner's private
// group.
func writableBy(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !ok:
		return ""
	case mode.Perm()&0o002 != 0:
		return "can be written by every user"
	case mode.Perm()&0o020 != 0 && st.Gid != st.Uid:
		return "can be written by its group"
	}
	return ""
}
