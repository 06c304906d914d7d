package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/config"
	"mcpgateway/internal/text"
)

// A trustStore stores the approvals of configuration files in working directories. Each approval of
// a path with a content is a file with mode 0600.
type trustStore struct {
	dir string // "" = there is no state directory
}

// An approval is a record of a trustStore.
type approval struct {
	Version int    `json:"version"`
	File    string `json:"file"`   // as resolvedPath returns it
	SHA256  string `json:"sha256"` // of the content
}

const (
	approvalVersion = 1
	maxApproval     = 64 << 10 // bytes of a record
	keptApprovals   = 500      // records; the oldest are removed
)

var errNoStateDir = errors.New(
	"there is no state directory for approvals: set HOME, or --state DIR")

// resolvedPath returns the absolute path of a file, with symbolic links in its directory resolved,
// because a shell and a client may use different paths of the same directory. A link at the end of
// the path is not resolved, because the approval contains the content. If the directory was
// removed, its existing parents are resolved.
func resolvedPath(file string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	dir, rest := filepath.Dir(path), filepath.Base(path)
	for {
		to, err := filepath.EvalSymlinks(dir)
		parent := filepath.Dir(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return filepath.Join(to, rest), err
		}
		dir, rest = parent, filepath.Join(filepath.Base(dir), rest)
	}
}

// approvalOf returns the approval of a file with this content, and the path of its record.
func (s trustStore) approvalOf(file string, data []byte) (a approval, path string, err error) {
	if s.dir == "" {
		return a, "", errNoStateDir
	}
	file, err = resolvedPath(file)
	if err != nil {
		return a, "", err
	}
	sum := sha256.Sum256(data)
	a = approval{approvalVersion, file, hex.EncodeToString(sum[:])}
	name := sha256.Sum256([]byte(a.SHA256 + "\x00" + file))
	return a, filepath.Join(s.dir, hex.EncodeToString(name[:])+".json"), nil
}

// has reports whether a file with this content is approved. It returns an error only if there is an
// approval that does not count, because other users may have written it or because its owner cannot
// be determined.
func (s trustStore) has(file string, data []byte) (bool, error) {
	want, path, err := s.approvalOf(file, data)
	if err != nil {
		return false, nil
	}
	got, err := readApproval(path)
	if err != nil || got != want {
		return false, nil
	}
	if err := s.checkOwners(); err != nil {
		return false, err
	}
	err = checkOwner(path, "this approval of a configuration file does not count")
	return err == nil, err
}

// add approves a file with this content.
func (s trustStore) add(file string, data []byte) error {
	a, path, err := s.approvalOf(file, data)
	if err != nil {
		return err
	}
	if err := s.checkOwners(); err != nil {
		return err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if err := os.Remove(path); err != nil { // WriteRecord would follow a link
			return err
		}
	}
	return atomicfile.WriteRecord(path, append(text, '\n'), keptApprovals)
}

// checkOwners returns an error if other users can write approvals to the store, or can create the
// store.
func (s trustStore) checkOwners() error {
	const effect = "the approvals of configuration files in it do not count"
	if s.dir == "" {
		return errNoStateDir
	}
	state := filepath.Dir(s.dir)
	if to, err := filepath.EvalSymlinks(state); err == nil { // only this directory may be a link
		state = to
	}
	for _, dir := range []string{state, s.dir} {
		if err := checkOwner(dir, effect); err != nil {
			return err
		}
	}
	return nil
}

// checkOwner returns an error if users other than this one and root can write the file or
// directory at path, or if path is a link. The error text contains effect.
func checkOwner(path, effect string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	why := config.WritableByOthers(info)
	hint := "run chmod go-w " + text.ShellWord(path) +
		" or, if it is not yours, remove it; then run gateway trust again"
	if info.Mode()&fs.ModeSymlink != 0 {
		why, hint = "is a link", "remove "+text.ShellWord(path)+", then run gateway trust again"
	}
	if why == "" {
		return nil
	}
	return &config.Error{File: path, Problem: why + ": " + effect, Hint: hint}
}

// remove revokes all approvals of a file and returns their number. It stops at the first record
// that cannot be removed.
func (s trustStore) remove(file string) (n int, err error) {
	file, err = resolvedPath(file)
	if err != nil {
		return 0, err
	}
	err = s.forEach(func(path string, a approval) error {
		if a.File != file {
			return nil
		}
		n++
		return os.Remove(path)
	})
	return n, err
}

// list returns the approved files, sorted. It skips approvals that do not count. It returns an
// error if other users can write approvals to the store.
func (s trustStore) list() (files []string, err error) {
	if err := s.checkOwners(); err != nil {
		return nil, err
	}
	err = s.forEach(func(path string, a approval) error {
		if checkOwner(path, "") == nil {
			files = append(files, a.File)
		}
		return nil
	})
	slices.Sort(files)
	return slices.Compact(files), err
}

// forEach calls do with each approval, and skips other files. It stops at the first error of do and
// returns it.
func (s trustStore) forEach(do func(path string, a approval) error) error {
	if s.dir == "" {
		return errNoStateDir
	}
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		a, err := readApproval(path)
		if err != nil {
			continue
		}
		if err := do(path, a); err != nil {
			return err
		}
	}
	return nil
}

func readApproval(path string) (a approval, err error) {
	text, err := atomicfile.ReadRecord(path, maxApproval)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil || a.Version != approvalVersion {
		return a, fmt.Errorf("%s is not an approval", path)
	}
	return a, nil
}
