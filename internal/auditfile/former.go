package auditfile

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A formerFile is a file that was rotated.
type formerFile struct {
	path      string
	number    int    // 1 is the newest
	suffix    string // "", .gz or .zst
	duplicate string // path of a compressed form that an interrupted compression left; "" = none
	info      fs.FileInfo
}

// formerFiles returns the former files of the file at path, the newest first.
func formerFiles(path string) ([]formerFile, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var all []formerFile
	for _, e := range entries {
		suffix := filepath.Ext(e.Name())
		if suffix != gzipSuffix && suffix != zstdSuffix {
			suffix = ""
		}
		number, ok := numberOf(strings.TrimSuffix(e.Name(), suffix), filepath.Base(path))
		if !ok {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, formerFile{path: numbered(path, number) + suffix, number: number,
			suffix: suffix, info: info})
	}
	slices.SortFunc(all, func(a, b formerFile) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.suffix, b.suffix))
	})
	return withoutDuplicates(all), nil
}

// withoutDuplicates replaces the compressed form of a file by formerFile.duplicate of the file.
// A file in two compressed forms stays twice.
func withoutDuplicates(all []formerFile) (result []formerFile) {
	for _, file := range all {
		last := len(result) - 1
		if last >= 0 && result[last].number == file.number && result[last].suffix == "" &&
			result[last].duplicate == "" {
			result[last].duplicate = file.path
			continue
		}
		result = append(result, file)
	}
	return result
}

// numberOf returns the number n of the name PATH.n.
func numberOf(name, path string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(name, path+".")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 1 && strconv.Itoa(n) == digits
}

// numbered returns the path of the file that was rotated n times.
func numbered(path string, n int) string { return path + "." + strconv.Itoa(n) }

// Files returns the paths of the audit file at path, if it exists, and of its former files, the
// oldest first. A file that is there in two forms is contained once. While a gateway rotates the
// files, they may have other names a moment later: see OpenAll.
func Files(path string) ([]string, error) {
	former, err := formerFiles(path)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range slices.Backward(former) {
		all = append(all, file.path)
	}
	if exists(path) {
		all = append(all, path)
	}
	return all, nil
}
