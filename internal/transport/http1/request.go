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

// write writes req, and counts the bytes in c.written.
func (c *clientConn) write(req *http.Request) error {
	c.head.write(req)
	if int64(c.head.Len())+req.ContentLength > int64(c.t.o.BufferSize) {
		w := bodyWriter{c: c, rest: req.ContentLength}
		if _, err := io.Copy(&w, req.Body); err != nil {
			return err
		}
		return wrongLength(req, req.ContentLength-w.rest)
	}
	if req.ContentLength > 0 {
		n, err := io.Copy(&c.head, req.Body)
		if err == nil {
			err = wrongLength(req, n)
		}
		if err != nil {
			return err
		}
	}
	n, err := c.Conn.Write(c.head.Bytes())
	c.written += int64(n)
	return err
}

// wrongLength returns an error if the length of a body, n, is not the announced length.
func wrongLength(req *http.Request, n int64) error {
	if n == req.ContentLength {
		return nil
	}
	return fmt.Errorf("the body of the request has %d bytes instead of %d", n, req.ContentLength)
}

// A bodyWriter writes the head of a request together with the first part of the body, and then the
// other parts. A body with a WriteTo, such as that of a bytes.Reader, has only one part.
type bodyWriter struct {
	c    *clientConn
	rest int64 // bytes that are missing
}

func (w *bodyWriter) Write(b []byte) (int, error) {
	if int64(len(b)) > w.rest {
		return 0, errors.New("the body of the request is longer than announced")
	}
	parts := net.Buffers{b}
	head := int64(w.c.head.Len())
	if head > 0 {
		parts = net.Buffers{w.c.head.Bytes(), b}
	}
	n, err := parts.WriteTo(w.c.Conn)
	w.c.written += n
	w.c.head.Reset()
	n = max(n-head, 0)
	w.rest -= n
	return int(n), err
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}
