package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// errUnknownLength is the error of a request with a body of unknown length.
var errUnknownLength = errors.New("the body of the request has no known length")

// checkRequest returns an error if req cannot be sent.
func checkRequest(req *http.Request) error {
	hasBody := req.Body != nil && req.Body != http.NoBody
	switch {
	case req.URL == nil || req.URL.Scheme != "http":
		return errors.New("the URL of the request is not one of plain HTTP")
	case req.ContentLength < 0, hasBody != (req.ContentLength > 0):
		return errUnknownLength
	case req.Method != "" && !isToken(req.Method):
		return fmt.Errorf("invalid method %q", req.Method)
	case !CanSend(hostOf(req)):
		return fmt.Errorf("invalid host %q", hostOf(req))
	}
	for name, values := range req.Header {
		if !isToken(name) {
			return fmt.Errorf("invalid header field name %q", name)
		}
		for _, value := range values {
			if !isFieldValue(value) {
				return fmt.Errorf("invalid header field value for %q", name)
			}
		}
	}
	return nil
}

func hostOf(req *http.Request) string {
	if req.Host != "" {
		return req.Host
	}
	return req.URL.Host
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' ||
			strings.IndexByte("!#$%&'*+.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s has no control characters except tabs.
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// CanSend reports whether a RoundTripper can send requests with this host in the URL or in
// Request.Host. The host may have a port. CanSend returns false for a host that is not in ASCII, or
// has a zone.
func CanSend(host string) bool {
	for i := range len(host) {
		c := host[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("-._~:[]!$&'()*+,;=", c) >= 0) {
			return false
		}
	}
	return host != ""
}

// A requestHead holds the head of a request, and possibly a short body, until they are written.
type requestHead struct{ bytes.Buffer }

// notWritten are the headers that requestHead.write does not take from Request.Header.
var notWritten = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true,
}

// write replaces the content by the head of req.
func (b *requestHead) write(req *http.Request) {
	b.Reset()
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	for _, part := range []string{
		method, " ", req.URL.RequestURI(), " HTTP/1.1\r\nHost: ", hostOf(req), "\r\n",
	} {
		b.WriteString(part)
	}
	switch {
	case req.ContentLength > 0, method == http.MethodPost, method == http.MethodPut,
		method == http.MethodPatch:
		b.WriteString("Content-Length: ")
		b.Write(strconv.AppendInt(b.AvailableBuffer(), req.ContentLength, 10))
		b.WriteString("\r\n")
	}
	if req.Close {
		b.WriteString("Connection: close\r\n")
	}
	_ = req.Header.WriteSubset(b, notWritten) // a bytes.Buffer never fails
	b.WriteString("\r\n")
}

// A requestWriter writes one request. If the body has a WriteTo, such as that of a bytes.Reader,
// its first long part is written in one system call with the head and the short parts before.
type requestWriter struct {
	c       *pooledConn
	req     *http.Request
	pending net.Buffers // bytes to write before further bytes are taken from the body
	rest    int64       // bytes that must still be taken from the body
}

// newRequestWriter takes the head of req, and the body if it is short. The connection must not get
// another requestWriter before req is written.
func newRequestWriter(c *pooledConn, req *http.Request) (*requestWriter, error) {
	c.head.write(req)
	w := &requestWriter{c: c, req: req, rest: req.ContentLength}
	if w.rest > 0 && int64(c.head.Len())+w.rest <= int64(c.t.o.BufferSize) {
		n, err := io.Copy(&c.head, req.Body)
		if w.rest -= n; err != nil {
			return nil, err
		}
		if w.rest != 0 {
			return nil, errWrongLength
		}
	}
	w.pending = net.Buffers{c.head.Bytes()}
	return w, nil
}

// errWrongLength is the error of a request whose body has not the announced length.
var errWrongLength = errors.New("the body of the request has not the length of Content-Length")

// run writes the request, and counts the bytes in pooledConn.written. If run fails because of a
// deadline, calling it again continues.
func (w *requestWriter) run() error {
	if w.rest > 0 {
		if _, err := io.Copy(w, w.req.Body); err != nil {
			return err
		}
		if w.rest > 0 {
			return errWrongLength
		}
	}
	return w.flush()
}

// Write takes b, the next part of the body, and writes it after all that is pending. It returns
// len(b) even if not all of b was written: the rest is pending. A short first part is pending until
// the next part is written.
func (w *requestWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > w.rest {
		return 0, errWrongLength
	}
	w.rest -= int64(len(b))
	isHead := len(w.pending) == 1 && w.c.written == 0 // only the head is pending
	if isHead && w.rest > 0 && w.c.head.Len()+len(b) <= w.c.t.o.BufferSize {
		w.c.head.Write(b)
		w.pending[0] = w.c.head.Bytes()
		return len(b), nil
	}
	w.pending = append(w.pending, b)
	return len(b), w.flush()
}

// flush writes all that is pending.
func (w *requestWriter) flush() error {
	if len(w.pending) == 0 {
		return nil
	}
	n, err := w.pending.WriteTo(w.c.Conn)
	w.c.written += n
	return err
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
