package auditfile

import (
	"errors"
	"os"
	"time"
)

// rotate renames path to path.1, after it has renamed path.1 to path.2 and so on, up to the first
// number that is not in use, and removes former files beyond the limits. This process holds
// path.lock alone.
func rotate(path string, keep Keep) error {
	former, err := formerFiles(path)
	if err != nil {
		return err
	}
	byNumber := make(map[int]formerFile, len(former))
	for _, file := range former {
		if file.duplicate != "" {
			if err := os.Remove(file.duplicate); err != nil {
				return err
			}
		}
		byNumber[file.number] = file
	}
	gap := 1
	for gap < keep.Files && byNumber[gap].path != "" {
		gap++
	}
	if last := byNumber[gap]; last.path != "" {
		if err := os.Remove(last.path); err != nil {
			return err
		}
	}
	for ; gap > 1; gap-- {
		file := byNumber[gap-1]
		if err := os.Rename(file.path, numbered(path, gap)+file.suffix); err != nil {
			return err
		}
	}
	if err := os.Rename(path, numbered(path, 1)); err != nil {
		return err
	}
	return removeFormer(path, keep)
}

// removeFormer removes former files beyond the limits. This process holds path.lock alone.
func removeFormer(path string, keep Keep) error {
	former, err := formerFiles(path)
	for _, file := range keep.excess(former) {
		err = errors.Join(err, os.Remove(file.path))
		if file.duplicate != "" {
			err = errors.Join(err, os.Remove(file.duplicate))
		}
	}
	return err
}

// excess returns the files that are beyond the limits. The newest of the former files is the first.
func (k Keep) excess(former []formerFile) (excess []formerFile) {
	var total int64
	for _, file := range former {
		total += file.info.Size()
		if file.number > k.Files || k.Size > 0 && total > k.Size ||
			k.Age > 0 && time.Since(file.info.ModTime()) >= k.Age {
			excess = append(excess, file)
		}
	}
	return excess
}
