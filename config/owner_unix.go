//go:build unix

package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// changeable returns a warning if another user can change a configuration file, or put another file
// in its place.
func changeable(path string) []string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	for _, name := range []string{real, filepath.Dir(real)} {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			continue
		}
		if why := byOthers(info, os.Geteuid()); why != "" {
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

// byOthers says why users other than uid and root can write a file; "" = they cannot. A group with
// the number of the owner is the owner's private group, as many systems have it. In a folder with
// the sticky bit only the owner of a file can replace it.
func byOthers(info fs.FileInfo, uid int) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	mode := info.Mode()
	switch {
	case int(st.Uid) != uid && st.Uid != 0:
		return "belongs to another user"
	case info.IsDir() && mode&fs.ModeSticky != 0:
		return ""
	case mode.Perm()&0o002 != 0:
		return "can be written by every user"
	case mode.Perm()&0o020 != 0 && st.Gid != st.Uid:
		return "can be written by its group"
	}
	return ""
}
