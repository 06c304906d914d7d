package transport

import (
	"bytes"
	"io"
)

var byteOrderMark = []byte("\xEF\xBB\xBF")

// TrimBOM returns text without the byte order mark (U+FEFF in UTF-8) that it may begin with.
func TrimBOM(text []byte) []byte { return bytes.TrimPrefix(text, byteOrderMark) }

// ReadText reads to the end of a text, or one byte further than limit. Announced is how long the text is said to be, -1 if
// nothing is said. That is believed up to believed; beyond it there is room for four times as much as has come at most, so
// that nobody takes up memory by what is only said.
//
// The room for the text is counted by lease, which the caller releases and which may be nil.
func ReadText(from io.Reader, announced int64, believed, limit int, lease *ReceiveLease) ([]byte, error) {
	room := min(believed, limit+1)
	if announced >= 0 {
		room = int(min(int64(room), announced+1)) // one more, to see the end
	}
	if err := lease.Resize(room); err != nil {
		return nil, err
	}
	text := make([]byte, 0, room)
	for {
		n, err := from.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case err == io.EOF:
			return text, nil
		case err != nil || len(text) > limit:
			return text, err
		case len(text) == cap(text):
			if room = 2 * len(text); int64(room) <= announced {
				room = int(min(int64(2*room), announced)) + 1
			}
			room = min(room, limit+1)
			if err := lease.Resize(room); err != nil {
				return text, err
			}
			text = append(make([]byte, 0, room), text...)
		}
	}
}
