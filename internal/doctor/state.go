package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"mcpgateway/internal/config"
	"mcpgateway/internal/text"
)

// minSpace is the free space, in bytes, below which a disk counts as nearly full.
const minSpace = 100 << 20

// StateDirectory checks the state directory; "" = there is none.
func StateDirectory(dir string) []DoctorFinding {
	f := findingList{subject: State}
	if dir == "" {
		f.add(Note, "", "no state directory: catalogs and logins are lost when the gateway ends")
		return f.all
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := existingParent(dir)
		if !canWrite(parent) {
			f.add(Problem, "make "+parent+" writable, or name another directory with --state",
				"%s cannot be created, because %s is not writable", dir, parent)
			return f.all
		}
		f.add(OK, "", "%s does not exist yet", dir)
		f.space(parent)
		return f.all
	case err != nil:
		f.add(Problem, "name another directory with --state", "%s: %s", dir,
			config.SystemMessage(err))
		return f.all
	case !info.IsDir():
		f.add(Problem, "name another directory with --state", "%s is not a directory", dir)
		return f.all
	case !canWrite(dir):
		f.add(Problem, "chmod u+rwx "+text.ShellWord(dir), "%s is not writable", dir)
	default:
		f.add(OK, "", "%s is writable", dir)
	}
	if why := config.WritableByOthers(info); why != "" {
		f.add(Warning, "chmod go-w "+text.ShellWord(dir), "%s %s", dir, why)
	}
	f.space(dir)
	return f.all
}

// space checks the free space of the disk of dir.
func (f *findingList) space(dir string) {
	free, known := freeSpace(dir)
	switch {
	case !known:
	case free < minSpace:
		f.add(Warning, "delete files on the disk of "+dir, "only %d MiB are free at %s", free>>20, dir)
	default:
		f.add(OK, "", "%d MiB are free", free>>20)
	}
}

// existingParent returns the nearest folder above path that exists.
func existingParent(path string) string {
	for {
		parent := filepath.Dir(path)
		if _, err := os.Stat(parent); err == nil || parent == path {
			return parent
		}
		path = parent
	}
}

// AuditFile checks whether audit records can be appended to a file; "" = they go to the log.
func AuditFile(path string) []DoctorFinding {
	f := findingList{subject: Audit}
	if path == "" || path == config.PathNone {
		f.add(OK, "", "no audit file is configured")
		return f.all
	}
	info, err := os.Stat(path)
	folder := filepath.Dir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && canWrite(existingParent(path)):
		f.add(OK, "", "%s does not exist yet", path)
	case errors.Is(err, fs.ErrNotExist):
		f.add(Problem, "make "+existingParent(path)+" writable, or change audit.file",
			"%s cannot be created", path)
	case err != nil:
		f.add(Problem, "change audit.file", "%s: %s", path, config.SystemMessage(err))
	case info.IsDir():
		f.add(Problem, "change audit.file", "%s is a directory", path)
	case !canWrite(path):
		f.add(Problem, "chmod u+w "+text.ShellWord(path), "%s is not writable", path)
	case info.Mode().IsRegular() && !canWrite(folder):
		f.add(Warning, "chmod u+w "+text.ShellWord(folder),
			"%s is not writable, so %s cannot be rotated", folder, path)
	default:
		f.add(OK, "", "%s is writable", path)
	}
	if _, err := os.Stat(folder); err == nil {
		f.space(folder)
	}
	return f.all
}
