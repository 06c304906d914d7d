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
) ([]byte, error) {
	capacity := min(trusted, limit+1)
	if announced >= 0 {
		capacity = int(min(int64(capacity), announced+1)) // one more byte, to detect the end
	}
	if err := lease.Resize(capacity); err != nil {
		return nil, err
	}
	text := make([]byte, 0, capacity)
	for {
		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case err == io.EOF:
			return text, nil
		case err != nil || len(text) > limit:
			return text, err
		case len(text) == cap(text):
			if capacity = 2 * len(text); int64(capacity) <= announced {
				capacity = int(min(int64(2*capacity), announced)) + 1
			}
			capacity = min(capacity, limit+1)
			if err := lease.Resize(capacity); err != nil {
				return text, err
			}
			text = append(make([]byte, 0, capacity), text...)
		}
	}
}
