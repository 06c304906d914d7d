//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/sse"
	"mcpgateway/internal/wire"
)

const initialize = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"chaos","version":"1"}}`

// shortClientName is the client name of all short modern clients. The gateway treats them as one
// stateless client, and keeps the state of a stateless client for minutes.
const shortClientName = "short"

// An httpTransport is streamable HTTP: with a session for legacy clients, without a session for
// modern clients.
type httpTransport struct {
	c         *client
	stateless bool
	http      *http.Client

	mu        sync.Mutex
	session   string
	endStream context.CancelFunc // ends the standalone stream
	stream    sync.WaitGroup
}

func newHTTPTransport(c *client, stateless bool) *httpTransport {
	if stateless {
		c.requestMeta = func(meta string) string {
			name := c.name
			if !c.permanent {
				name = shortClientName
			}
			info, _ := json.Marshal(map[string]string{"name": "chaos-" + name, "version": "1"})
			if meta != "" {
				meta = "," + meta
			}
			return `{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
				`"io.modelcontextprotocol/clientCapabilities":{},` +
				`"io.modelcontextprotocol/clientInfo":` + string(info) + meta + `}`
		}
	}
	return &httpTransport{c: c, stateless: stateless,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16,
			IdleConnTimeout: 5 * time.Second}}}
}

func (h *httpTransport) request(ctx context.Context, method string, m wire.Message,
	tool string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.c.harness.gateway.url+"/mcp",
		bytes.NewReader(m.Raw()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if h.stateless {
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", m.Method())
		if tool != "" {
			req.Header.Set("Mcp-Name", tool)
		}
		return req, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session != "" {
		req.Header.Set("Mcp-Session-Id", h.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	return req, nil
}

func (h *httpTransport) open(ctx context.Context) error {
	if h.stateless {
		return nil
	}
	req, err := h.request(ctx, http.MethodPost,
		wire.NewRequest(`"hello"`, "initialize", []byte(initialize)), "")
	if err != nil {
		return err
	}
	res, err := h.http.Do(req)
	if err != nil {
		return err
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	session := res.Header.Get("Mcp-Session-Id")
	if session == "" {
		return fmt.Errorf("initialize: %s: %.200s", res.Status, body)
	}
	h.mu.Lock()
	h.session = session
	h.mu.Unlock()
	if err := h.write(ctx, wire.NewNotification("notifications/initialized", nil)); err != nil {
		return err
	}
	h.openStandaloneStream(ctx)
	return nil
}

// openStandaloneStream opens the standalone stream of the session.
func (h *httpTransport) openStandaloneStream(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	h.endStream = cancel
	h.mu.Unlock()
	h.stream.Go(func() {
		req, err := h.request(ctx, http.MethodGet, wire.Message{}, "")
		if err != nil {
			return
		}
		req.Body, req.ContentLength = nil, 0
		res, err := h.http.Do(req)
		if err != nil {
			return
		}
		defer res.Body.Close()
		if res.StatusCode == http.StatusOK {
			_ = events(res.Body, h.c.receive)
		}
	})
}

func (h *httpTransport) write(ctx context.Context, m wire.Message) error {
	req, err := h.request(ctx, http.MethodPost, m, "")
	if err != nil {
		return err
	}
	res, err := h.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("status of a notification: %s", res.Status)
	}
	return nil
}

func (h *httpTransport) send(ctx context.Context, m wire.Message,
	tool string) (over bool, err error) {
	req, err := h.request(ctx, http.MethodPost, m, tool)
	if err != nil {
		return true, err
	}
	res, err := h.http.Do(req)
	if err != nil {
		return true, err
	}
	defer res.Body.Close()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch kind {
	case "text/event-stream":
		return true, events(res.Body, h.c.receive)
	case "application/json":
		body, err := io.ReadAll(res.Body)
		if err == nil {
			h.c.receive(body)
		}
		return true, err
	}
	body, _ := io.ReadAll(res.Body)
	return true, fmt.Errorf("%s: %.200s", res.Status, body)
}

func (h *httpTransport) close(politely bool) {
	if politely && !h.stateless {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if req, err := h.request(ctx, http.MethodDelete, wire.Message{}, ""); err == nil {
			req.Body, req.ContentLength = nil, 0
			if res, err := h.http.Do(req); err == nil {
				res.Body.Close()
			}
		}
	}
	h.mu.Lock()
	if h.endStream != nil {
		h.endStream()
	}
	h.session, h.endStream = "", nil
	h.mu.Unlock()
	h.stream.Wait()
	h.http.CloseIdleConnections()
}

// maxEvent is the maximum size of the data of one event, in bytes.
const maxEvent = 64 << 20

// events calls receive with the data of each message event until the stream ends.
func events(r io.Reader, receive func([]byte)) error {
	return eachEvent(r, func(e sse.Event) { receive(e.Data) })
}

func eachEvent(r io.Reader, receive func(sse.Event)) error {
	reader := sse.NewReader(maxEvent, nil)
	reader.Open(r)
	defer reader.Close()
	for {
		event, err := reader.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return errors.Join(err, errors.New("the stream was cut"))
		}
		receive(event)
	}
}

// An httpSSETransport is the HTTP+SSE transport of revision 2024-11-05.
type httpSSETransport struct {
	c    *client
	http *http.Client

	mu        sync.Mutex
	post      string // URL of the endpoint event
	endStream context.CancelFunc
	stream    sync.WaitGroup
	hello     chan struct{}
}

func newHTTPSSETransport(c *client) *httpSSETransport {
	return &httpSSETransport{c: c,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16,
			IdleConnTimeout: 5 * time.Second}}}
}

func (s *httpSSETransport) open(ctx context.Context) error {
	life, cancel := context.WithCancel(ctx)
	address := s.c.harness.gateway.url + "/sse"
	req, err := http.NewRequestWithContext(life, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := s.http.Do(req)
	if err != nil {
		cancel()
		return err
	}
	endpoint, hello := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.endStream, s.hello = cancel, hello
	s.mu.Unlock()
	s.stream.Go(func() {
		defer res.Body.Close()
		_ = eachEvent(res.Body, func(e sse.Event) {
			data := e.Data
			switch {
			case e.Type == "endpoint":
				at, err := res.Request.URL.Parse(string(data))
				if err != nil {
					return // treated like a missing endpoint
				}
				s.mu.Lock()
				s.post = at.String()
				s.mu.Unlock()
				close(endpoint)
			case bytes.Contains(data, []byte(`"id":"hello"`)):
				close(hello)
			default:
				s.c.receive(data)
			}
		})
	})
	select {
	case <-endpoint:
	case <-time.After(callTimeout):
		cancel()
		return errors.New("no endpoint event")
	}
	if err := s.write(ctx, wire.NewRequest(`"hello"`, "initialize",
		[]byte(strings.Replace(initialize, "2025-11-25", "2024-11-05", 1)))); err != nil {
		return err
	}
	select {
	case <-hello:
	case <-time.After(callTimeout):
		return errors.New("initialize has no response")
	}
	return s.write(ctx, wire.NewNotification("notifications/initialized", nil))
}

func (s *httpSSETransport) write(ctx context.Context, m wire.Message) error {
	s.mu.Lock()
	url := s.post
	s.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Raw()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusAccepted {
		if bytes.HasPrefix(body, []byte("{")) {
			s.c.receive(body)
			return nil
		}
		return fmt.Errorf("%s: %.200s", res.Status, body)
	}
	return nil
}

func (s *httpSSETransport) send(ctx context.Context, m wire.Message,
	_ string) (over bool, err error) {
	return false, s.write(ctx, m)
}

func (s *httpSSETransport) close(bool) {
	s.mu.Lock()
	if s.endStream != nil {
		s.endStream()
	}
	s.endStream = nil
	s.mu.Unlock()
	s.stream.Wait()
	s.http.CloseIdleConnections()
}

// A stdioTransport is a gateway on stdio that serves only this client.
type stdioTransport struct {
	c       *client
	cmd     *exec.Cmd
	in      io.WriteCloser
	writing sync.Mutex
	reader  sync.WaitGroup
}

func (s *stdioTransport) open(ctx context.Context) error {
	w := s.c.harness
	config := filepath.Join(filepath.Dir(w.config), s.c.name+".yaml")
	if err := writeConfig(config, configuration(stdioBackends(w.backends), w.dir, s.c.name, w.stub,
		w.envMark)); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(w.dir, s.c.name+".log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(w.binary, "-c", config)
	s.cmd.Env = append(os.Environ(), markEnv+"="+w.envMark)
	s.cmd.Stderr = log
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.in = in
	hello := make(chan struct{})
	s.reader.Go(func() {
		for lines := bufio.NewReaderSize(out, 64<<10); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			line = bytes.TrimSuffix(line, []byte("\n"))
			if bytes.HasPrefix(line, []byte(`{"jsonrpc":"2.0","id":"hello"`)) {
				close(hello)
				continue
			}
			s.c.receive(line)
		}
	})
	if err := s.write(ctx, wire.NewRequest(`"hello"`, "initialize",
		[]byte(initialize))); err != nil {
		return err
	}
	select {
	case <-hello:
	case <-time.After(callTimeout):
		return errors.New("initialize has no response")
	}
	return s.write(ctx, wire.NewNotification("notifications/initialized", nil))
}

func (s *stdioTransport) write(_ context.Context, m wire.Message) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.in.Write(append(bytes.Clone(m.Raw()), '\n'))
	return err
}

func (s *stdioTransport) send(ctx context.Context, m wire.Message,
	_ string) (over bool, err error) {
	return false, s.write(ctx, m)
}

// close closes stdin of the gateway, which must then exit within 15 s.
func (s *stdioTransport) close(bool) {
	if s.cmd == nil {
		return
	}
	s.in.Close()
	kill := time.AfterFunc(15*time.Second, func() {
		s.c.breach("its gateway did not exit when stdin was closed")
		_ = s.cmd.Process.Kill()
	})
	s.reader.Wait()
	err := s.cmd.Wait()
	kill.Stop()
	if err != nil {
		s.c.breach("its gateway exited with %v", err)
	}
	s.cmd = nil
}
