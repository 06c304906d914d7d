package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// explainStartError says of a file that was found and could not be started why that is, where the
// system's own words mislead.
func explainStartError(path string, err error) error {
	switch {
	case errors.Is(err, syscall.EBADF): // what the new process has of ours is put where there is no room for it
		return fmt.Errorf("%w (%w)", syscall.EMFILE, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("command %q is no program of this system, nor a script that begins with #! (%w)", path, syscall.ENOEXEC)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("command %q: its args and env are too long together (%w)", path, syscall.E2BIG)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, e := os.Stat(path); e != nil {
		return err
	}
	if line := firstLine(path); strings.HasPrefix(line, "#!") {
		return fmt.Errorf("command %q is a script whose first line names a program that does not exist: %q", path, line)
	}
	return fmt.Errorf("command %q needs a loader that does not exist: it is built for another system", path)
}

// firstLine returns what a file begins with, "" if it cannot be read. What stands at the end
// of the line, such as a carriage return, belongs to it.
func firstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 128)).ReadString('\n')
	return strings.TrimSuffix(line, "\n")
}
