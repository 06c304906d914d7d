//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// A visitor is a raw client over streamable HTTP that hears all of its streams at the same time: one for each request
// it makes, and the GET stream. What it hears goes to hear, from several goroutines at once.
type visitor struct {
	url     string
	session string
	client  *http.Client
	hear    func(stream string, m message) // the stream is the raw id of the request, or "GET"

	ctx     context.Context
	cancel  context.CancelFunc
	streams sync.WaitGroup
}

// errNoSession is what the gateway says of a session that has ended: 404.
var errNoSession = errors.New("404 Not Found")

// visit does the handshake.
func visit(ctx context.Context, client *http.Client, url, capabilities string, hear func(string, message)) (*visitor, error) {
	v := &visitor{url: url, client: client, hear: func(string, message) {}}
	v.ctx, v.cancel = context.WithCancel(ctx)
	err := v.post("0", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+
		capabilities+`,"clientInfo":{"name":"visitor","version":"1"}}}`)
	if err == nil && v.session == "" {
		err = fmt.Errorf("initialize: no session")
	}
	if err == nil {
		err = v.post("", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	if hear != nil {
		v.hear = hear
	}
	return v, err
}

func (v *visitor) do(method, body string) (*http.Response, error) {
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

// post sends a message. For a request it hears the stream to its end; stream is what hear is told.
func (v *visitor) post(stream, body string) error {
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
		return v.listenTo(stream, res.Body)
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
		v.hear(stream, m)
		return nil
	}
}

// listen opens the GET stream, and hears it in the background.
func (v *visitor) listen() error {
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
		_ = v.listenTo("GET", res.Body) // until leave, or the gateway ends it
	})
	return nil
}

// listenTo hears a stream of events, of which each has one line of data.
func (v *visitor) listenTo(stream string, body io.Reader) error {
	events := bufio.NewReader(body)
	for {
		line, err := events.ReadBytes('\n')
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
		if data = bytes.TrimPrefix(data, []byte(" ")); !ok || len(data) == 0 {
			continue
		}
		m, err := parseMessage(data)
		if err != nil {
			return fmt.Errorf("%w: %q", err, data)
		}
		v.hear(stream, m)
	}
}

// leave ends the session with a DELETE.
func (v *visitor) leave() error {
	res, err := v.do(http.MethodDelete, "")
	if err == nil {
		res.Body.Close()
		if res.StatusCode == http.StatusNotFound {
			err = errNoSession
		} else if res.StatusCode >= 300 {
			err = fmt.Errorf("DELETE: %s", res.Status)
		}
	}
	v.vanish()
	return err
}

// vanish breaks off what is open, and ends nothing.
func (v *visitor) vanish() {
	v.cancel()
	v.streams.Wait()
}
