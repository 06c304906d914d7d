package httpclient

import (
	"io"

	"mcpgateway/internal/wire"
)

// A textReader reads a text. Unlike that of an io.MultiReader, its length is known to package
// retryablehttp, and its WriteTo passes the pieces without a copy.
type textReader struct{ rest wire.Text }

// Len returns the number of bytes that are not read yet.
func (r *textReader) Len() int { return r.rest.Len() }

func (r *textReader) Read(b []byte) (n int, err error) {
	for i, piece := range r.rest {
		read := copy(b[n:], piece)
		r.rest[i], n = piece[read:], n+read
	}
	if n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// WriteTo implements [io.WriterTo].
func (r *textReader) WriteTo(w io.Writer) (written int64, err error) {
	for i, piece := range r.rest {
		if len(piece) == 0 {
			continue
		}
		n, err := w.Write(piece)
		r.rest[i], written = piece[n:], written+int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}
