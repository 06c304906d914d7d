package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// WriteRecord writes a file with [Write], to the disk and to the target of a symbolic link. It then
// removes the oldest files of the directory until keep files are left.
func WriteRecord(path string, data []byte, keep int) error {
	if err := Write(path, data, Options{Sync: true, FollowLink: true}); err != nil {
		return err
	}
	keepNewest(filepath.Dir(path), keep)
	return nil
}

// ReadRecord returns the content of a regular file of at most limit bytes. The error is
// fs.ErrNotExist if there is no file. If the file is not regular or too large, the text of the
// error does not contain the path.
func ReadRecord(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, errors.New("it is too large")
	}
	return data, nil
}
