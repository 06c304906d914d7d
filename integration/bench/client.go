package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A client uses MCP with as little work as possible. Its messages are prepared in advance, except
// for the id.
type client interface {
	// roundTrip sends a request and returns the response. For a notification it returns nil.
	roundTrip(message string) ([]byte, error)
	// makeCalls makes n calls, inFlight of them concurrently. It must not be called concurrently.
	makeCalls(n, inFlight int, of callSpec) (*callTimes, error)
	// close closes the connection.
	close()
}

// callTimes are the measured times of some calls.
type callTimes struct {
	latencies []time.Duration // latency of each call
	elapsed   time.Duration   // total time of all calls
}

const (
	pingRequest             = `{"jsonrpc":"2.0","id":"up","method":"ping"}`
	initializeRequest       = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	initializedNotification = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	toolsListRequest        = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
)

// initialize performs the handshake.
func initialize(c client) error {
	if _, err := c.roundTrip(initializeRequest); err != nil {
		return err
	}
	_, err := c.roundTrip(initializedNotification)
	return err
}

// findTool returns the listed name of the tool, which may have a prefix.
func findTool(c client, tool string) (string, error) {
	tools, err := c.roundTrip(toolsListRequest)
	if err != nil {
		return "", err
	}
	end := bytes.Index(tools, []byte(tool+`"`))
	if end < 0 {
		return "", fmt.Errorf("no tool %s in %.300s", tool, tools)
	}
	end += len(tool)
	return string(tools[bytes.LastIndexByte(tools[:end], '"')+1 : end]), nil
}

// A callSpec describes a call.
type callSpec struct {
	tool string
	size int // bytes of the argument, and of the result
}

// firstID is the id of the first call. All ids have the same length.
const firstID = 100_000_000

const idPrefix = `{"jsonrpc":"2.0","id":`

// A request is the text of a call, in which setID replaces the id for each call.
type request struct {
	text    []byte
	id      []byte // part of text
	payload []byte // part of text
}

func (c callSpec) request(before, behind string) request {
	payload := strings.Repeat("0123456789abcdef", c.size/16+1)[:c.size]
	text := []byte(before + idPrefix + strconv.Itoa(firstID) +
		`,"method":"tools/call","params":{"name":"` + c.tool + `","arguments":{"text":"` + payload +
		`"}}}` + behind)
	at := len(before) + len(idPrefix)
	payloadAt := len(text) - len(behind) - len(`"}}}`) - c.size
	return request{text: text, id: text[at : at+9], payload: text[payloadAt : payloadAt+c.size]}
}

// setID replaces the id in the text.
func (r request) setID(id int) { strconv.AppendInt(r.id[:0], int64(id), 10) }

// check returns an error unless response is a result that contains the first 32 bytes of the sent
// text and is not shorter than the sent text.
func (r request) check(response []byte) error {
	switch {
	case bytes.Contains(response[:min(len(response), 200)], []byte(`"error"`)):
		return fmt.Errorf("a call failed: %.300s", response)
	case len(response) < len(r.payload),
		!bytes.Contains(response, r.payload[:min(len(r.payload), 32)]):
		return fmt.Errorf("a response lacks the text that was sent: %.300s", response)
	}
	return nil
}

// A stdioClient is a client on the stdin and stdout of a process.
type stdioClient struct {
	in   io.WriteCloser
	out  *bufio.Reader
	next int // id of the next call
}

func newStdioClient(in io.WriteCloser, out io.Reader) *stdioClient {
	return &stdioClient{in: in, out: bufio.NewReaderSize(out, 4<<20), next: firstID}
}

func (p *stdioClient) close() { p.in.Close() }

func (p *stdioClient) roundTrip(message string) ([]byte, error) {
	if _, err := io.WriteString(p.in, message+"\n"); err != nil {
		return nil, err
	}
	if !strings.Contains(message, `"id":`) {
		return nil, nil
	}
	for {
		line, err := p.out.ReadBytes('\n')
		switch {
		case err != nil:
			return nil, fmt.Errorf("no response to %.60s: %w", message, err)
		case field(line, `"id":`) == nil: // for example list_changed
		case bytes.Contains(line[:min(len(line), 200)], []byte(`"error"`)):
			return nil, fmt.Errorf("%.60s failed: %.200s", message, line)
		default:
			return line, nil
		}
	}
}

// readResponse returns the next response. It skips requests and notifications.
func (p *stdioClient) readResponse() ([]byte, error) {
	for {
		line, err := p.out.ReadSlice('\n')
		if err != nil || !bytes.Contains(line[:min(len(line), 100)], []byte(`"method"`)) {
			return line, err
		}
	}
}

// makeCalls writes each request in a separate system call, as clients do.
func (p *stdioClient) makeCalls(n, inFlight int, of callSpec) (*callTimes, error) {
	r := of.request("", "\n")
	first := p.next
	p.next += n
	s := &callTimes{latencies: make([]time.Duration, n)}
	began := make([]time.Time, n)
	start := time.Now()
	if inFlight == 1 {
		for i := range n {
			r.setID(first + i)
			began[i] = time.Now()
			if _, err := p.in.Write(r.text); err != nil {
				return nil, err
			}
			response, err := p.readResponse()
			if err != nil {
				return nil, err
			}
			s.latencies[i] = time.Since(began[i])
			if err := r.check(response); err != nil {
				return nil, err
			}
		}
		s.elapsed = time.Since(start)
		return s, nil
	}
	slots := make(chan struct{}, inFlight)
	failed := make(chan error, 1)
	var mu sync.Mutex // guards began
	go func() {
		for i := range n {
			slots <- struct{}{}
			r.setID(first + i)
			mu.Lock()
			began[i] = time.Now()
			mu.Unlock()
			if _, err := p.in.Write(r.text); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for range n {
		response, err := p.readResponse()
		if err != nil {
			return nil, err
		}
		if err := r.check(response); err != nil {
			return nil, err
		}
		id, err := strconv.Atoi(string(field(response, `"id":`)))
		if i := id - first; err != nil || i < 0 || i >= n || s.latencies[i] != 0 {
			return nil, fmt.Errorf("a response has the unknown id %d: %.200s", id, response)
		} else {
			mu.Lock()
			s.latencies[i] = time.Since(began[i])
			mu.Unlock()
		}
		<-slots
	}
	s.elapsed = time.Since(start)
	return s, <-failed
}

// An httpClient is a client over HTTP with one session, and a connection for each call in flight.
type httpClient struct {
	address string
	path    string
	session string
	conns   []*conn
	next    int
}

// A conn is one connection.
type conn struct {
	net.Conn
	r    *bufio.Reader
	body []byte
}

func newHTTPClient(address, path string) *httpClient {
	return &httpClient{address: address, path: path, next: firstID}
}

// withoutSession removes the session and keeps the connections.
func (w *httpClient) withoutSession() *httpClient {
	w.session = ""
	return w
}

func (w *httpClient) head(length int) string {
	session := ""
	if w.session != "" {
		session = "Mcp-Session-Id: " + w.session + "\r\nMCP-Protocol-Version: 2025-11-25\r\n"
	}
	return fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n",
		w.path, w.address, session, length)
}

// conn returns connection i, after dialling the missing connections up to i.
func (w *httpClient) conn(i int) (*conn, error) {
	for len(w.conns) <= i {
		dialled, err := net.Dial("tcp", w.address)
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, &conn{Conn: dialled, r: bufio.NewReaderSize(dialled, 64<<10)})
	}
	return w.conns[i], nil
}

func (w *httpClient) close() {
	for _, c := range w.conns {
		c.Close()
	}
}

func (w *httpClient) roundTrip(message string) ([]byte, error) {
	c, err := w.conn(0)
	if err != nil {
		return nil, err
	}
	h, err := c.exchange([]byte(w.head(len(message)) + message))
	if err != nil {
		return nil, fmt.Errorf("%.60s: %w", message, err)
	}
	if h.session != "" {
		w.session = h.session
	}
	if bytes.Contains(c.body[:min(len(c.body), 200)], []byte(`"error"`)) {
		return nil, fmt.Errorf("%.60s failed: %.200s", message, c.body)
	}
	return bytes.Clone(c.body), nil
}

// exchange sends a request and stores the body of the response in c.body.
func (c *conn) exchange(request []byte) (h httpHead, err error) {
	if _, err = c.Write(request); err != nil {
		return h, err
	}
	if h, err = readHead(c.r); err != nil {
		return h, err
	}
	if c.body, err = h.body(c.r, c.body[:0]); err != nil {
		return h, err
	}
	if !strings.Contains(h.firstLine, " 20") {
		return h, fmt.Errorf("%s: %.300s", h.firstLine, c.body)
	}
	if h.events {
		c.body = lastEvent(c.body)
	}
	return h, nil
}

// lastEvent returns the data of the last event of a stream.
func lastEvent(stream []byte) []byte {
	i := bytes.LastIndex(stream, []byte("data:"))
	if i < 0 {
		return nil
	}
	return bytes.TrimSpace(stream[i+len("data:"):])
}

func (w *httpClient) makeCalls(n, inFlight int, of callSpec) (*callTimes, error) {
	s := &callTimes{latencies: make([]time.Duration, n)}
	first := w.next
	w.next += n
	var all sync.WaitGroup
	errs := make([]error, inFlight)
	length := len(of.request("", "").text)
	if _, err := w.conn(inFlight - 1); err != nil {
		return nil, err
	}
	start := time.Now()
	for k := range inFlight {
		c := w.conns[k]
		work := func() {
			r := of.request(w.head(length), "")
			for i := k; i < n; i += inFlight {
				r.setID(first + i)
				began := time.Now()
				if _, err := c.exchange(r.text); err != nil {
					errs[k] = err
					return
				}
				s.latencies[i] = time.Since(began)
				if err := r.check(c.body); err != nil {
					errs[k] = err
					return
				}
			}
		}
		if inFlight == 1 {
			work()
		} else {
			all.Go(work)
		}
	}
	all.Wait()
	s.elapsed = time.Since(start)
	return s, errors.Join(errs...)
}
