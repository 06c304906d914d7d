package auditfile

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// An OpenedFile is an audit file, open for reading. Later lines, and a new name of the file, do not
// change what is read.
type OpenedFile struct {
	Path string
	file *os.File
	size int64
}

// OpenAll opens the audit file at path, if it exists, and its former files, the oldest first. A
// file that is there in two forms is contained once. The caller closes the files. No gateway
// rotates the files or appends linked lines in the meantime, unless path.lock cannot be locked.
func OpenAll(path string) ([]*OpenedFile, error) {
	lock := pathLock{path: path + ".lock"}
	if _, err := os.Stat(lock.path); err == nil { // otherwise no gateway has written to the file
		if unlock, ok, _ := lock.try(false, lockWait); ok {
			defer unlock()
		}
	}
	paths, err := Files(path)
	if err != nil {
		return nil, err
	}
	return openFiles(paths)
}

// OpenNamed opens audit files in the order of their lines, as far as their names show it: a file
// whose name begins all other names is the last, before it the files NAME.1, NAME.2 and so on, and
// before these the other files in the order of paths. It omits a compressed form of a file that is
// also named in the other form, and locks.
func OpenNamed(paths []string) ([]*OpenedFile, error) {
	newest := slices.MinFunc(paths, func(a, b string) int { return len(a) - len(b) })
	for _, path := range paths {
		if !strings.HasPrefix(path, newest) {
			newest = ""
		}
	}
	var others, numbered []string
	number := make(map[string]int)
	for _, path := range paths {
		plain := strings.TrimSuffix(strings.TrimSuffix(path, gzipSuffix), zstdSuffix)
		switch n, ok := numberOf(plain, newest); {
		case strings.HasSuffix(path, ".lock"), plain != path && slices.Contains(paths, plain):
		case path == newest:
		case ok && newest != "":
			number[path] = n
			numbered = append(numbered, path)
		default:
			others = append(others, path)
		}
	}
	slices.SortStableFunc(numbered, func(a, b string) int { return number[b] - number[a] })
	all := append(others, numbered...)
	if newest != "" {
		all = append(all, newest)
	}
	return openFiles(all)
}

func openFiles(paths []string) (all []*OpenedFile, err error) {
	for _, path := range paths {
		f, err := openRead(path)
		var info os.FileInfo
		if err == nil {
			all = append(all, &OpenedFile{Path: path, file: f})
			info, err = f.Stat()
		}
		if err != nil {
			for _, f := range all {
				f.Close()
			}
			return nil, err
		}
		all[len(all)-1].size = info.Size()
	}
	return all, nil
}

// Reader returns a reader of the contents, decompressed. It may be called once.
func (o *OpenedFile) Reader() (io.ReadCloser, error) {
	return decompressed(o.Path, io.LimitReader(o.file, o.size))
}

// Close closes the file.
func (o *OpenedFile) Close() { _ = o.file.Close() }

// decompressed returns a reader of the contents of a file, decompressed if the name of the file
// ends in .gz or .zst. Closing it does not close r.
func decompressed(name string, r io.Reader) (io.ReadCloser, error) {
	switch filepath.Ext(name) {
	case gzipSuffix:
		return gzip.NewReader(r)
	case zstdSuffix:
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}
