//go:build unix

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// A streamClient is a raw client over streamable HTTP that reads all of its streams at the same
// time: one for each of its requests, and the GET stream. onMessage is called from several
// goroutines at once.
type streamClient struct {
	url       string
	session   string
	client    *http.Client
	onMessage func(stream string, m message) // stream is the raw id of the request, or "GET"

	ctx     context.Context
	cancel  context.CancelFunc
	streams sync.WaitGroup
}

// errNoSession is the gateway's response for a session that has ended: 404.
var errNoSession = errors.New("404 Not Found")

// dialStreams does the handshake.
func dialStreams(ctx context.Context, client *http.Client, url, capabilities string,
	onMessage func(string, message)) (*streamClient, error) {
	v := &streamClient{url: url, client: client, onMessage: func(string, message) {}}
	v.ctx, v.cancel = context.WithCancel(ctx)
	err := v.post("0",
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+
			capabilities+`,"clientInfo":{"name":"stream-client","version":"1"}}}`)
	if err == nil && v.session == "" {
		err = fmt.Errorf("initialize: no session")
	}
	if err == nil {
		err = v.post("", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	if onMessage != nil {
		v.onMessage = onMessage
	}
	return v, err
}

func (v *streamClient) do(method, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(v.ctx, method, v.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodGet {
		req.Header.Set("Accept", "text/event-stream")
	}
	if v.session != "" {
		req.Header.Set("Mcp-Session-Id", v.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	return v.client.Do(req)
}

// post sends a message. For a request it reads the stream to its end, and passes stream to
// onMessage.
func (v *streamClient) post(stream, body string) error {
	res, err := v.do(http.MethodPost, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if s := res.Header.Get("Mcp-Session-Id"); s != "" && v.session == "" {
		v.session = s
	}
	switch kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); {
	case res.StatusCode == http.StatusAccepted:
		return nil
	case res.StatusCode == http.StatusOK && kind == "text/event-stream":
		return v.readStream(stream, res.Body)
	default:
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		m, err := parseMessage(text)
		if res.StatusCode == http.StatusNotFound {
			return fmt.Errorf("%w: %q", errNoSession, text)
		} else if err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %q", res.Status, text)
		}
		v.onMessage(stream, m)
		return nil
	}
}

// openStandalone opens the GET stream, and reads it in the background.
func (v *streamClient) openStandalone() error {
	res, err := v.do(http.MethodGet, "")
	if err != nil {
		return err
	}
	if res.StatusCode == http.StatusNotFound {
		res.Body.Close()
		return errNoSession
	} else if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return fmt.Errorf("GET: %s", res.Status)
	}
	v.streams.Go(func() {
		defer res.Body.Close()
		_ = v.readStream("GET", res.Body) // until deleteSession, or until the gateway closes it
	})
	return nil
}

// readStream reads a stream of events.
func (v *streamClient) readStream(stream string, body io.Reader) error {
	events := newEventReader(body)
	for {
		event, err := events.Next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		m, err := parseMessage(event.Data)
		if err != nil {
			return fmt.Errorf("%w: %q", err, event.Data)
		}
		v.onMessage(stream, m)
	}
}

// deleteSession ends the session with a DELETE.
func (v *streamClient) deleteSession() error {
	res, err := v.do(http.MethodDelete, "")
	if err == nil {
		res.Body.Close()
		if res.StatusCode == http.StatusNotFound {
			err = errNoSession
		} else if res.StatusCode >= 300 {
			err = fmt.Errorf("DELETE: %s", res.Status)
		}
	}
	v.disconnect()
	return err
}

// disconnect closes all streams, and does not end the session.
func (v *streamClient) disconnect() {
	v.cancel()
	v.streams.Wait()
}
