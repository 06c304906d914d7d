package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"mcpgateway/internal/text"
)

const (
	// maxReply bounds the part of a receiver's response that is read, in bytes.
	maxReply = 64 << 10
	// The wait before a further try grows from minRetryWait to maxRetryWait.
	minRetryWait = time.Second
	maxRetryWait = 10 * time.Second
)

// An otlpClient sends spans by OTLP over HTTP, with protobuf.
type otlpClient struct {
	settings *ExportSettings
	agent    string // User-Agent
	http     *http.Client
	stopping <-chan struct{} // closed when nothing is tried again
}

func newOTLPClient(o Options) *otlpClient {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = o.Settings.tls
	if o.Dial != nil {
		transport.DialContext = o.Dial
	}
	return &otlpClient{settings: o.Settings, agent: "mcp-gateway/" + o.Version, http: &http.Client{
		Transport: transport, Timeout: o.Settings.timeout,
		// a redirect could send the headers, and the spans, to another host
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// upload sends an encoded request. It tries again, until ctx or stopping is done, if the connection
// fails or the receiver is temporarily unavailable. Its error is a *partialSuccessError if the
// receiver has taken the spans only in part, or has a warning.
func (c *otlpClient) upload(ctx context.Context, body []byte) error {
	if c.settings.gzip {
		body = compressed(body)
	}
	for wait := minRetryWait; ; wait = min(2*wait, maxRetryWait) {
		err := c.post(ctx, body)
		var temporary *temporaryError
		if !errors.As(err, &temporary) {
			return err
		}
		pause := time.NewTimer(max(wait/2+rand.N(wait), temporary.retryAfter))
		select {
		case <-pause.C:
			continue
		case <-ctx.Done():
		case <-c.stopping:
		}
		pause.Stop()
		return err
	}
}

func compressed(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body) // a Buffer never fails
	_ = w.Close()
	return b.Bytes()
}

// A temporaryError is an error after which the request may be sent again.
type temporaryError struct {
	err        error
	retryAfter time.Duration // the receiver's, 0 = none
}

func (e *temporaryError) Error() string { return e.err.Error() }

func (e *temporaryError) Unwrap() error { return e.err }

// A partialSuccessError is the error of a request that the receiver has taken, with a complaint.
type partialSuccessError struct {
	rejected int64 // spans that it did not take
	message  string
}

func (e *partialSuccessError) Error() string {
	return fmt.Sprintf("the receiver rejected %d spans: %s", e.rejected, e.message)
}

// post sends a request once.
func (c *otlpClient) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.settings.endpoint,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range c.settings.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", c.agent)
	if c.settings.gzip {
		r.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return &temporaryError{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	reply, _ := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if resp.StatusCode/100 == 2 {
		return partialSuccess(reply)
	}
	err = fmt.Errorf("the receiver responds with HTTP status %d", resp.StatusCode)
	// a google.rpc.Status
	if message := field(reply, 2); len(message) > 0 {
		err = fmt.Errorf("%w: %s", err, text.Truncate(string(message), maxAttribute))
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return &temporaryError{err, retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return err
}

// retryAfter parses a header Retry-After: seconds or a date; 0 = none.
func retryAfter(value string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}

// partialSuccess returns the *partialSuccessError in an ExportTraceServiceResponse; nil = none.
func partialSuccess(reply []byte) error {
	partial := field(reply, 1) // partial_success
	rejected, message := number(partial, 1), string(field(partial, 2))
	if rejected <= 0 && message == "" {
		return nil
	}
	return &partialSuccessError{max(rejected, 0), text.Truncate(message, maxAttribute)}
}

// field returns the last field with this number, which is a string or a message, in an encoded
// protobuf message; nil = none. The message may be invalid.
func field(message []byte, wanted protowire.Number) (value []byte) {
	eachField(message, func(n protowire.Number, kind protowire.Type, rest []byte) {
		if n == wanted && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(rest)
		}
	})
	return value
}

// number is like field, for a field that is a number; 0 = none.
func number(message []byte, wanted protowire.Number) (value int64) {
	eachField(message, func(n protowire.Number, kind protowire.Type, rest []byte) {
		if n == wanted && kind == protowire.VarintType {
			u, _ := protowire.ConsumeVarint(rest)
			value = int64(u)
		}
	})
	return value
}

// eachField visits the fields of an encoded message, up to the first invalid one. rest begins with
// the value of the field.
func eachField(
	message []byte, visit func(n protowire.Number, kind protowire.Type, rest []byte),
) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return
		}
		message = message[size:]
		end := protowire.ConsumeFieldValue(n, kind, message)
		if end < 0 {
			return
		}
		visit(n, kind, message[:end])
		message = message[end:]
	}
}

// oneLine returns the text of an error on one line, without control characters.
func oneLine(err error) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(err.Error(), "\uFFFD"))
}
