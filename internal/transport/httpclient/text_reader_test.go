package httpclient

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"mcpgateway/internal/wire"
)

func TestTextReader(t *testing.T) {
	for _, text := range []wire.Text{{[]byte("abc")}, {[]byte("abc"), []byte("defgh")},
		{nil, []byte("x")}} {
		want := string(text.Bytes())
		if err := iotest.TestReader(&textReader{text}, []byte(want)); err != nil {
			t.Error(err)
		}
		r := &textReader{text}
		if r.Len() != len(want) {
			t.Errorf("%q: length %d", want, r.Len())
		}
		var got strings.Builder
		if n, err := io.Copy(&got, r); err != nil || int(n) != len(want) || got.String() != want ||
			r.Len() != 0 {
			t.Errorf("%q: wrote %q, %d bytes, %v", want, got.String(), n, err)
		}
	}
}
