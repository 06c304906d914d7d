package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// FuzzResponse compares the result of a RoundTripper with that of net/http's Transport for the same
// bytes of a response, after which the server closes the connection.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		okResponse,
		"HTTP/1.0 200 OK\r\n\r\nrest",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n" + okResponse,
		"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nrest",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2;x=y\r\nok\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nok\r\n",
		"HTTP/1.1 200\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "\x15\x03\x01\x00\x02\x02", "",
		"HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, response []byte, head bool) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				r := bufio.NewReader(server)
				if req, err := http.ReadRequest(r); err == nil {
					io.Copy(io.Discard, req.Body)
					server.Write(response)
				}
			}()
			return client, nil
		}
		o := testOptions("server.test:80")
		o.Dial = dial
		method, body := "POST", "abc"
		if head {
			method, body = "HEAD", ""
		}
		do := func(rt http.RoundTripper) (*http.Response, string, error, error) {
			resp, err := rt.RoundTrip(request(t.Context(), method, body))
			if err != nil {
				return nil, "", err, nil
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			return resp, string(text), nil, err
		}
		tr := New(o)
		defer tr.CloseIdleConnections()
		standard := &http.Transport{DialContext: dial, DisableCompression: true,
			MaxResponseHeaderBytes: int64(o.MaxHeaderBytes)}
		defer standard.CloseIdleConnections()
		want, wantText, wantErr, wantBodyErr := do(standard)
		got, text, err, bodyErr := do(tr)
		if want != nil && want.StatusCode == http.StatusSwitchingProtocols {
			return // net/http returns the connection
		}
		if (err == nil) != (wantErr == nil) || (bodyErr == nil) != (wantBodyErr == nil) {
			t.Fatalf("got errors %v, %v; want %v, %v", err, bodyErr, wantErr, wantBodyErr)
		}
		if err == nil {
			compare(t, got, text, want, wantText)
		}
	})
}
