package auditfile

import (
	"io"
	"os"
	"path/filepath"

	"mcpgateway/internal/auditchain"
)

// maxTail bounds the bytes at the end of the files that are searched for the last linked line.
const maxTail = 4 << 20

// A chainEnd is the end of a chain, as far as a File knows it. The zero value knows nothing.
type chainEnd struct {
	link   auditchain.End
	size   int64 // size of the open file after the line at which link is; meaningful if known
	known  bool  // link is the end of the chain if the open file still has the size
	sealed []byte
}

// seal returns lines with their links, until the next call.
func (c *chainEnd) seal(lines []byte) []byte {
	c.sealed = c.link.Append(c.sealed[:0], lines)
	return c.sealed
}

// keep is called after the sealed lines were appended.
func (c *chainEnd) keep(f *openFile) {
	info, err := f.Stat()
	c.known = err == nil
	if c.known {
		c.size = info.Size()
	}
}

// forget makes the next call of find read the files.
func (c *chainEnd) forget() { c.known = false }

// find sets link to the end of the chain in f, the file at path, or, if it has no linked line, in
// the newest former file. It reads the files only if f has changed since keep.
func (c *chainEnd) find(path string, f *openFile) error {
	info, err := f.Stat()
	if err != nil || c.known && info.Size() == c.size {
		return err
	}
	c.link, c.known = auditchain.End{}, false
	tail, whole, err := tailOf(f, info.Size())
	if err != nil {
		return err
	}
	f.torn = len(tail) > 0 && tail[len(tail)-1] != '\n'
	var ok bool
	c.link, ok = auditchain.EndAfter(tail, whole)
	if c.link.Number > 0 || !ok {
		return nil
	}
	former, err := formerFiles(path)
	if err != nil || len(former) == 0 {
		return err
	}
	before, whole, err := tailOfFile(former[0].path)
	if err != nil {
		return err
	}
	if len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(before, '\n')
	}
	c.link, _ = auditchain.EndAfter(append(before, tail...), whole)
	return nil
}

// leave is called before f is replaced by the file at path. If f is the newest former file, or was
// moved elsewhere, an empty new file continues the chain in f.
func (c *chainEnd) leave(path string, f *openFile) {
	info, err := f.Stat()
	if err == nil {
		err = c.find(path, f)
	}
	former, formerErr := formerFiles(path)
	c.size, c.known = 0, err == nil && formerErr == nil && (len(former) == 0 ||
		os.SameFile(former[0].info, info) || !former[0].info.ModTime().After(info.ModTime()))
}

// tailOf returns the end of a file of size bytes, up to maxTail and at least the last linked line.
// whole reports whether the tail is the whole file.
func tailOf(f io.ReaderAt, size int64) (tail []byte, whole bool, err error) {
	for want := int64(64 << 10); ; want *= 8 {
		want = min(want, size, maxTail)
		tail = make([]byte, want)
		if _, err := f.ReadAt(tail, size-want); err != nil && err != io.EOF {
			return nil, false, err
		}
		whole = want == size
		if _, ok := auditchain.EndAfter(tail, whole); ok || whole || want == maxTail {
			return tail, whole, nil
		}
	}
}

// tailOfFile returns the end of a former file, like tailOf.
func tailOfFile(path string) (tail []byte, whole bool, err error) {
	f, err := openRead(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if filepath.Ext(path) == gzipSuffix || filepath.Ext(path) == zstdSuffix {
		r, err := decompressed(path, f)
		if err != nil {
			return nil, false, err
		}
		defer r.Close()
		return tailOfStream(r)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	return tailOf(f, info.Size())
}

// tailOfStream returns at least the last maxTail bytes of a stream.
func tailOfStream(r io.Reader) (tail []byte, whole bool, err error) {
	whole = true
	for {
		chunk, err := io.ReadAll(io.LimitReader(r, maxTail))
		if err != nil {
			return nil, false, err
		}
		if len(chunk) == 0 {
			return tail, whole, nil
		}
		if extra := len(tail) - maxTail; extra > 0 {
			tail, whole = append(tail[:0], tail[extra:]...), false
		}
		tail = append(tail, chunk...)
	}
}
