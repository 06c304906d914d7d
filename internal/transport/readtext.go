package transport

import (
	"bytes"
	"io"
)

var byteOrderMark = []byte("\xEF\xBB\xBF")

// TrimBOM returns text without a leading byte order mark (U+FEFF in UTF-8).
func TrimBOM(text []byte) []byte { return bytes.TrimPrefix(text, byteOrderMark) }

// ReadText reads r to its end, or to one byte more than limit. announced is the announced length of
// the text; -1 = unknown. ReadText first allocates at most trusted bytes, and later at most four
// times the bytes that have arrived, so that a false announcement does not waste memory. It fails
// with the error of r or of lease, and then returns the text that it has read.
//
// lease counts the allocated bytes; nil = not counted. The caller releases the lease.
func ReadText(
	r io.Reader, announced int64, trusted, limit int, lease *ReceiveLease,
) (text []byte, err error) {
	capacity := min(trusted, limit+1)
	if announced >= 0 {
		capacity = int(min(int64(capacity), announced+1)) // one more byte, to detect the end
	}
	if err := lease.Resize(capacity); err != nil {
		return nil, err
	}
	buf, size := make([]byte, 0, capacity), 0
	full := make([][]byte, 0, 20) // on the stack for a text of 1 MiB
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf, size = buf[:len(buf)+n], size+n
		switch {
		case err == io.EOF:
			return joinChunks(full, buf), nil
		case err != nil || size > limit:
			return joinChunks(full, buf), err
		case len(buf) == cap(buf):
			full = append(full, buf)
			capacity = min(3*size, chunkSize, limit+1-size)
			if rest := announced + 1 - int64(size); rest > 0 {
				capacity = int(min(int64(capacity), rest))
			}
			if err := lease.Resize(size + capacity); err != nil {
				return joinChunks(full, nil), err
			}
			if buf = nil; capacity == chunkSize {
				buf = newChunk()
			} else {
				buf = make([]byte, 0, capacity)
			}
		}
	}
}

// joinChunks returns the concatenation of all chunks and last. It does not copy last if there are
// no other chunks. The chunks must not be used afterwards.
func joinChunks(all [][]byte, last []byte) []byte {
	if len(all) == 0 {
		return last
	}
	all = append(all, last)
	text := bytes.Join(all, nil) // unlike make, Join does not zero the memory
	for _, chunk := range all {
		if cap(chunk) == chunkSize {
			chunkPool.Put((*[chunkSize]byte)(chunk[:chunkSize]))
		}
	}
	return text
}
