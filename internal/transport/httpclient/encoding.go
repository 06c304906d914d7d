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

	"mcpgateway/internal/text"
	"mcpgateway/internal/transport"
)

// maxRatio bounds the ratio of the decompressed to the compressed length of a body. The ratio is
// checked each time the decompressed bytes exceed the maximum length of a message. Shorter bodies
// need no check, because that maximum bounds them.
const maxRatio = 200

// maxCodings bounds the content codings of one body.
const maxCodings = 3

// errRatio is the read error of a compressed body that exceeds maxRatio.
var errRatio = &transport.UnreadableError{Reason: fmt.Sprintf(
	"the compressed body is more than %d times as long when it is decompressed: "+
		"let the server send it uncompressed", maxRatio)}

// decode replaces the body of a response by its decoded content: some servers use content codings
// although only identity was requested. If a coding is not supported, or there are more than
// maxCodings, reading the body fails.
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
	var decoded io.Reader = body
	for i := range codings {
		coding := codings[len(codings)-1-i]
		switch {
		case i == maxCodings:
			decoded = errReader{&transport.UnreadableError{Reason: fmt.Sprintf(
				"the body has more than %d codings (Content-Encoding): "+
					"let the server send it without Content-Encoding", maxCodings)}}
		case coding == "gzip" || coding == "x-gzip" || coding == "deflate":
			decoded = &decompressor{coding: coding, limit: limit, source: meteredReader{r: decoded}}
			continue
		default:
			decoded = errReader{&transport.UnreadableError{Reason: fmt.Sprintf(
				"the body has the Content-Encoding %q, which the gateway neither supports nor "+
					"requests: let the server, or the proxy in front of it, send it uncompressed",
				text.Truncate(coding, 20))}}
		}
		break
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{decoded, body}
	resp.ContentLength = -1
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
}

// An errReader is a reader that always fails.
type errReader struct{ err error }

func (f errReader) Read([]byte) (int, error) { return 0, f.err }

// A meteredReader counts the bytes that are read.
type meteredReader struct {
	r io.Reader
	n int
}

func (c *meteredReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += n
	return n, err
}

// A decompressor decompresses a body in gzip or deflate. It does not read ahead, so that events
// arrive when the server flushes them. A body that is not compressed, contrary to its header, stays
// unchanged.
type decompressor struct {
	coding      string
	limit       int
	source      meteredReader
	buffered    *bufio.Reader // reads source
	out         io.Reader     // nil before the first byte, and between two gzip members
	afterMember bool          // a gzip member has been read
	length      int           // bytes returned since source.n was last reset
	err         error
}

func (d *decompressor) Read(b []byte) (int, error) {
	for d.err == nil {
		if d.out == nil {
			d.err = d.detect()
			continue
		}
		n, err := d.out.Read(b)
		if d.length += n; d.length > d.limit+1 { // a body that is too long has one more byte
			if d.length/maxRatio > d.source.n {
				err = errRatio
			}
			d.length, d.source.n = 0, 0
		}
		if _, zipped := d.out.(*gzip.Reader); zipped && err == io.EOF {
			d.out, d.afterMember, err = nil, true, nil // another member may follow
		}
		if d.err = err; n > 0 || err != nil {
			return n, err
		}
	}
	return 0, d.err
}

// detect selects the decompressor according to the first bytes of the body, or of the data after a
// gzip member.
func (d *decompressor) detect() error {
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
	case d.afterMember: // the rest is padding
		return io.EOF
	default:
		d.out, err = d.buffered, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// isZlib reports whether a deflate stream starts with a zlib header, as the standard requires.
func isZlib(head []byte) bool {
	return len(head) == 2 && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0
}

// startsLikeText reports whether a body starts like uncompressed JSON or an event stream.
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
