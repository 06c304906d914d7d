package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// maxFile is the maximum length, in bytes, of a configuration file of the gateway or another
// client.
const maxFile = 64 << 20

// readTime is the maximum time to read a pipe or a device to its end.
const readTime = 10 * time.Second

var errTooLong = errors.New("it is longer than 64 MiB")

// ReadFile reads a configuration file, up to the length that Load accepts. The file must be a
// regular file or a link to one, because opening a pipe would block until another process opens it
// for writing.
func ReadFile(path string) ([]byte, error) { return readRegular(path, maxFile) }

// readRegular reads a regular file of at most limit bytes.
func readRegular(path string, limit int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := mustBeRegular(info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := mustBeRegular(info); err != nil {
		return nil, err
	}
	if info.Size() > int64(limit) {
		return nil, tooLong(limit)
	}
	return readBounded(f, limit)
}

// ReadNamed reads a file that the user named, up to the length that Load accepts. A pipe or a
// device must end within 10 s, so that a pipe without a writer causes an error.
func ReadNamed(path string) ([]byte, error) { return readNamed(path, readTime, maxFile) }

// readNamed reads a file that the user named: a regular file, or a pipe or device that must end
// within the time limit. It has at most size bytes.
func readNamed(path string, limit time.Duration, size int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir(), mode&fs.ModeSocket != 0:
		return readRegular(path, size)
	}
	type content struct {
		data []byte
		err  error
	}
	done := make(chan content, 1)
	go func() { // blocks until the pipe is open and at its end
		f, err := os.Open(path)
		if err != nil {
			done <- content{nil, err}
			return
		}
		defer f.Close()
		data, err := readBounded(f, size)
		done <- content{data, err}
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case c := <-done:
		return c.data, c.err
	case <-late.C:
		return nil,
			fmt.Errorf("is %s, and did not end within %v: close its writing end, or name a file",
				kindOf(info.Mode()), limit)
	}
}

func readBounded(f *os.File, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = tooLong(limit)
	}
	return data, err
}

// tooLong returns the error for a file that is longer than limit, in bytes.
func tooLong(limit int) error {
	if limit == maxFile {
		return errTooLong
	}
	return fmt.Errorf("it is longer than %d KiB", limit>>10)
}

// mustBeRegular returns an error unless the file is regular.
func mustBeRegular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return errors.New("is a directory")
	default:
		return notRegularError{kindOf(mode)}
	}
}

// notRegularError is the error for a file that is neither regular nor a directory.
type notRegularError struct{ kind string }

func (e notRegularError) Error() string {
	return "is " + e.kind + ", and must be a regular file or a link to one"
}

// kindOf describes a file that is neither regular nor a directory.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a file"
}
