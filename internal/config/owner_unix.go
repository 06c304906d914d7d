//go:build unix

package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writableWarning returns a warning if another user can change or replace a configuration file.
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
		if info.IsDir() && info.Mode()&fs.ModeSticky != 0 { // only owners replace files there
			why = foreignOwner(info, os.Geteuid())
		}
		if why != "" {
			what := "the file"
			if info.IsDir() {
				what = "its folder " + name
			}
			return []string{fmt.Sprintf("%s: %s %s: whoever changes it can start programs as you; "+
				"run chmod go-w, or chown it to yourself", path, what, why)}
		}
	}
	return nil
}

// WritableByOthers explains why users other than the current one and root can write a file or
// folder; "" = they cannot.
func WritableByOthers(info fs.FileInfo) string {
	return cmp.Or(foreignOwner(info, os.Geteuid()), writableBy(info))
}

// foreignOwner returns a text if neither the user uid nor root owns a file.
func foreignOwner(info fs.FileInfo, uid int) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != uid && st.Uid != 0 {
		return "belongs to another user"
	}
	return ""
}

// writableBy describes who can write a file in addition to its owner; "" = nobody. A group with
// the same number as the owner is the owner's private group on many systems, and is ignored.
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
