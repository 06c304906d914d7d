package auditfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"mcpgateway/internal/filelock"
)

// A Compression is a form in which former files are stored. "" means None.
type Compression string

// The compressions.
const (
	None Compression = "none"
	Gzip Compression = "gzip"
	Zstd Compression = "zstd"
)

const (
	gzipSuffix = ".gz"
	zstdSuffix = ".zst"
)

// suffix returns the end of the names of compressed files; "" = files are not compressed.
func (c Compression) suffix() string {
	switch c {
	case Gzip:
		return gzipSuffix
	case Zstd:
		return zstdSuffix
	}
	return ""
}

// newWriter returns a writer that compresses to w. It needs about 1 MiB of memory with gzip, and
// about 5 MiB with zstd.
func (c Compression) newWriter(w io.Writer) (io.WriteCloser, error) {
	if c == Gzip {
		return gzip.NewWriterLevel(w, gzip.DefaultCompression)
	}
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(1<<20))
}

// A compressor compresses the former files of the file at path.
type compressor struct {
	path string
	lock *pathLock
	form Compression
}

// run compresses the files, the oldest first, unless another process is doing so.
func (c *compressor) run(ctx context.Context) error {
	temp := c.path + ".compress.tmp"
	if _, ok := c.next(); !ok && !exists(temp) {
		return nil
	}
	unlock, ok, err := filelock.TryLock(c.path + ".compress.lock")
	if err != nil || !ok {
		return err
	}
	defer unlock()
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // of an interrupted compression
	}
	for ctx.Err() == nil {
		file, ok := c.next()
		if !ok {
			return nil
		}
		err := c.compress(ctx, file.path, temp)
		if err != nil {
			_ = os.Remove(temp)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// next returns the oldest former file that has to be compressed.
func (c *compressor) next() (next formerFile, ok bool) {
	if c.form.suffix() == "" || c.lock.isDevice {
		return formerFile{}, false
	}
	former, _ := formerFiles(c.path)
	for _, file := range former {
		if file.suffix == "" {
			next, ok = file, true
		}
	}
	return next, ok
}

// compress compresses a former file to temp, and replaces the file by it. The file may get another
// number or be removed in the meantime; then compress uses its new number, or does nothing.
func (c *compressor) compress(ctx context.Context, path, temp string) error {
	in, err := openRead(path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	size, err := writeCompressed(ctx, temp, in, info, c.form)
	if err != nil {
		return err
	}
	unlock, ok, err := c.lock.try(true, chainLockWait)
	if !ok {
		return fmt.Errorf("compress %s: %w", path, cmp.Or(err, errLocked))
	}
	defer unlock()
	if info, err = in.Stat(); err != nil {
		return err
	}
	former, err := formerFiles(c.path)
	if err != nil {
		return err
	}
	for _, file := range former {
		if !os.SameFile(file.info, info) || info.Size() != size {
			continue // another file, or a late line of another process was appended
		}
		in.Close()
		target := numbered(c.path, file.number) + c.form.suffix()
		if err := os.Rename(temp, target); err != nil {
			return err
		}
		if file.duplicate != "" && file.duplicate != target {
			err = os.Remove(file.duplicate)
		}
		return errors.Join(err, os.Remove(file.path))
	}
	return os.Remove(temp)
}

// writeCompressed writes the compressed contents of in to temp, with the time and the permissions
// in info, and returns the number of bytes it has read.
func writeCompressed(
	ctx context.Context, temp string, in io.Reader, info fs.FileInfo, c Compression,
) (size int64, err error) {
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	w, err := c.newWriter(out)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(w, contextReader{ctx, in})
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = out.Sync()
	}
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, err
	}
	return size, os.Chtimes(temp, info.ModTime(), info.ModTime())
}

// A contextReader fails when its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
