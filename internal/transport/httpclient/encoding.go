package httpclient

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"mcpgateway/internal/transport"
)

// maxRatio bounds how much longer than its compressed form a body may be. It is looked at once for
// each part of as many bytes as one message may have: a shorter body is bounded by that already.
const maxRatio = 200

// maxCodings bounds the codings of one body, which are undone one after the other.
const maxCodings = 3

// errRatio is why reading a compressed body fails that is longer than maxRatio allows.
var errRatio = &transport.UnreadableError{Reason: fmt.Sprintf("the compressed body is more than %d times as long when it is decompressed: let the server send it as it is", maxRatio)}

// decode makes the body of a response read as the server's own text, whatever coding it came in,
// though only identity was asked for. A body whose coding is not known fails when it is read.
func decode(resp *http.Response, limit int) {
	var codings []string
	for _, line := range resp.Header.Values("Content-Encoding") {
		for coding := range strings.SplitSeq(line, ",") {
			coding = strings.ToLower(strings.TrimSpace(coding))
			if coding != "" && coding != "identity" {
				codings = append(codings, coding)
			}
		}
	}
	if len(codings) == 0 {
		return
	}
	body := resp.Body
	var text io.Reader = body
	for i := range codings {
		coding := codings[len(codings)-1-i]
		switch {
		case i == maxCodings:
			text = errReader{&transport.UnreadableError{Reason: fmt.Sprintf("the body has more than %d codings (Content-Encoding): let the server send it as it is", maxCodings)}}
		case coding == "gzip" || coding == "x-gzip" || coding == "deflate":
			text = &decoder{coding: coding, limit: limit, source: countingReader{r: text}}
			continue
		default:
			text = errReader{&transport.UnreadableError{Reason: fmt.Sprintf("the body has the Content-Encoding %q, which cannot be read here and was not asked for: "+
				"let the server, or the proxy before it, send it as it is", truncateCoding(coding))}}
		}
		break
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{text, body}
	resp.ContentLength = -1
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
}

// A errReader is a reader that only fails.
type errReader struct{ err error }

func (f errReader) Read([]byte) (int, error) { return 0, f.err }

// A countingReader counts the bytes that are read.
type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}

// A decoder reads a body in gzip or deflate. It waits for no more than what it returns needs, so
// that events arrive when the server flushes them. A text that is not compressed, whatever the
// header says, is read as it is.
type decoder struct {
	coding      string
	limit       int
	source      countingReader
	buffered    *bufio.Reader // of from
	out         io.Reader     // nil before the first byte, and between two members of gzip
	afterMember bool          // a member of gzip was read
	length      int           // of what was returned since from.n was last 0
	err         error
}

func (d *decoder) Read(b []byte) (int, error) {
	for d.err == nil {
		if d.out == nil {
			d.err = d.detect()
			continue
		}
		n, err := d.out.Read(b)
		if d.length += n; d.length > d.limit+1 { // one more is read to see that a body is too long
			if d.length/maxRatio > d.source.n {
				err = errRatio
			}
			d.length, d.source.n = 0, 0
		}
		if _, zipped := d.out.(*gzip.Reader); zipped && err == io.EOF {
			d.out, d.afterMember, err = nil, true, nil // another member may follow, now or later
		}
		if d.err = err; n > 0 || err != nil {
			return n, err
		}
	}
	return 0, d.err
}

// detect looks at the first bytes of the body, or of what follows a member of gzip.
func (d *decoder) detect() error {
	if d.buffered == nil {
		d.buffered = bufio.NewReaderSize(&d.source, 4<<10)
	}
	head, err := d.buffered.Peek(2)
	switch {
	case len(head) < 2 && d.afterMember:
		return io.EOF
	case len(head) == 0:
		return err
	case d.coding == "deflate" && isZlib(head):
		d.out, err = zlib.NewReader(d.buffered)
	case d.coding == "deflate" && !startsLikeText(head):
		d.out, err = flate.NewReader(d.buffered), nil
	case d.coding != "deflate" && len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b:
		var z *gzip.Reader
		if z, err = gzip.NewReader(d.buffered); err == nil {
			z.Multistream(false)
			d.out = z
		}
	case d.afterMember: // what follows is padding
		return io.EOF
	default:
		d.out, err = d.buffered, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// isZlib reports whether a deflate stream begins with a header of zlib, as it should.
func isZlib(head []byte) bool {
	return len(head) == 2 && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0
}

// startsLikeText reports whether a body that should be compressed begins as JSON or an event stream.
func startsLikeText(head []byte) bool {
	switch head[0] {
	case '{', ' ', '\n', '\r':
		return true
	}
	switch string(head) {
	case "[{", "[ ", "[\n", "[\r", "da", "ev", "id", "re", ": ":
		return true
	}
	return false
}

// truncateCoding returns the name of a coding, cut to what an error can bear.
func truncateCoding(name string) string {
	const longest = 20
	if len(name) <= longest {
		return name
	}
	return strings.ToValidUTF8(name[:longest], "") + "…"
}
