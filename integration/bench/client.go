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

// A client speaks MCP with as little work as can be. What it sends is made beforehand, but for the id.
type client interface {
	// ask sends a request and returns its answer; a notification has none.
	ask(message string) ([]byte, error)
	// calls makes n calls, inFlight of them at a time. It is not called twice at a time.
	calls(n, inFlight int, of call) (*sample, error)
	// close ends the conversation.
	close()
}

// A sample is what came of some calls.
type sample struct {
	took    []time.Duration // by each call
	elapsed time.Duration   // in all
}

const (
	ping  = `{"jsonrpc":"2.0","id":"up","method":"ping"}`
	hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	ready = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	list  = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
)

// initialize shakes hands.
func initialize(c client) error {
	if _, err := c.ask(hello); err != nil {
		return err
	}
	_, err := c.ask(ready)
	return err
}

// find returns the tool's name as it is listed: a gateway may have put something before it.
func find(c client, tool string) (string, error) {
	tools, err := c.ask(list)
	if err != nil {
		return "", err
	}
	end := bytes.Index(tools, []byte(tool+`"`))
	if end < 0 {
		return "", fmt.Errorf("no tool is called %s in %.300s", tool, tools)
	}
	end += len(tool)
	return string(tools[bytes.LastIndexByte(tools[:end], '"')+1 : end]), nil
}

// A call says what is called, and with how much.
type call struct {
	tool string
	size int // of the argument, and of the answer, in bytes
}

// firstID is the id of the first call: all have the same length.
const firstID = 100_000_000

const idAt = `{"jsonrpc":"2.0","id":`

// A request is the text of a call, in which the id is exchanged from call to call.
type request struct {
	text    []byte
	id      []byte // in text
	payload []byte // likewise
}

func (c call) request(before, behind string) request {
	payload := strings.Repeat("0123456789abcdef", c.size/16+1)[:c.size]
	text := []byte(before + idAt + strconv.Itoa(firstID) + `,"method":"tools/call","params":{"name":"` + c.tool + `","arguments":{"text":"` + payload + `"}}}` + behind)
	at := len(before) + len(idAt)
	payloadAt := len(text) - len(behind) - len(`"}}}`) - c.size
	return request{text: text, id: text[at : at+9], payload: text[payloadAt : payloadAt+c.size]}
}

// number gives the request another id.
func (r request) number(id int) { strconv.AppendInt(r.id[:0], int64(id), 10) }

// check looks whether an answer is one.
func (r request) check(answer []byte) error {
	switch {
	case bytes.Contains(answer[:min(len(answer), 200)], []byte(`"error"`)):
		return fmt.Errorf("a call was answered with %.300s", answer)
	case len(answer) < len(r.payload), !bytes.Contains(answer, r.payload[:min(len(r.payload), 32)]):
		return fmt.Errorf("an answer lacks the text that was sent: %.300s", answer)
	}
	return nil
}

// A pipe is a client over the stdio of a process.
type pipe struct {
	in   io.WriteCloser
	out  *bufio.Reader
	next int // id
}

func newPipe(in io.WriteCloser, out io.Reader) *pipe {
	return &pipe{in: in, out: bufio.NewReaderSize(out, 4<<20), next: firstID}
}

func (p *pipe) close() { p.in.Close() }

func (p *pipe) ask(message string) ([]byte, error) {
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
			return nil, fmt.Errorf("no answer to %.60s: %w", message, err)
		case field(line, `"id":`) == nil: // list_changed, say
		case bytes.Contains(line[:min(len(line), 200)], []byte(`"error"`)):
			return nil, fmt.Errorf("%.60s was answered with %.200s", message, line)
		default:
			return line, nil
		}
	}
}

// answer returns the next response.
func (p *pipe) answer() ([]byte, error) {
	for {
		line, err := p.out.ReadSlice('\n')
		if err != nil || !bytes.Contains(line[:min(len(line), 100)], []byte(`"method"`)) {
			return line, err
		}
	}
}

// calls writes each request by itself, as clients do.
func (p *pipe) calls(n, inFlight int, of call) (*sample, error) {
	r := of.request("", "\n")
	first := p.next
	p.next += n
	s := &sample{took: make([]time.Duration, n)}
	began := make([]time.Time, n)
	start := time.Now()
	if inFlight == 1 {
		for i := range n {
			r.number(first + i)
			began[i] = time.Now()
			if _, err := p.in.Write(r.text); err != nil {
				return nil, err
			}
			answer, err := p.answer()
			if err != nil {
				return nil, err
			}
			s.took[i] = time.Since(began[i])
			if err := r.check(answer); err != nil {
				return nil, err
			}
		}
		s.elapsed = time.Since(start)
		return s, nil
	}
	slots := make(chan struct{}, inFlight)
	failed := make(chan error, 1)
	var mu sync.Mutex // of began
	go func() {
		for i := range n {
			slots <- struct{}{}
			r.number(first + i)
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
		answer, err := p.answer()
		if err != nil {
			return nil, err
		}
		if err := r.check(answer); err != nil {
			return nil, err
		}
		id, err := strconv.Atoi(string(field(answer, `"id":`)))
		if i := id - first; err != nil || i < 0 || i >= n || s.took[i] != 0 {
			return nil, fmt.Errorf("an answer has the id %d, which was not asked: %.200s", id, answer)
		} else {
			mu.Lock()
			s.took[i] = time.Since(began[i])
			mu.Unlock()
		}
		<-slots
	}
	s.elapsed = time.Since(start)
	return s, <-failed
}

// A web is a client over HTTP: one session, and a connection for each call in flight.
type web struct {
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

func newWeb(address, path string) *web { return &web{address: address, path: path, next: firstID} }

// anew forgets the session, but not the connections.
func (w *web) anew() *web {
	w.session = ""
	return w
}

func (w *web) head(length int) string {
	session := ""
	if w.session != "" {
		session = "Mcp-Session-Id: " + w.session + "\r\nMCP-Protocol-Version: 2025-11-25\r\n"
	}
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n",
		w.path, w.address, session, length)
}

// conn returns a connection, a new one if there are too few.
func (w *web) conn(i int) (*conn, error) {
	for len(w.conns) <= i {
		dialled, err := net.Dial("tcp", w.address)
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, &conn{Conn: dialled, r: bufio.NewReaderSize(dialled, 64<<10)})
	}
	return w.conns[i], nil
}

func (w *web) close() {
	for _, c := range w.conns {
		c.Close()
	}
}

func (w *web) ask(message string) ([]byte, error) {
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
		return nil, fmt.Errorf("%.60s was answered with %.200s", message, c.body)
	}
	return bytes.Clone(c.body), nil
}

// exchange sends a request and leaves the body of its answer in c.body.
func (c *conn) exchange(request []byte) (h head, err error) {
	if _, err = c.Write(request); err != nil {
		return h, err
	}
	if h, err = readHead(c.r); err != nil {
		return h, err
	}
	if c.body, err = h.body(c.r, c.body[:0]); err != nil {
		return h, err
	}
	if !strings.Contains(h.first, " 20") {
		return h, fmt.Errorf("%s: %.300s", h.first, c.body)
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

func (w *web) calls(n, inFlight int, of call) (*sample, error) {
	s := &sample{took: make([]time.Duration, n)}
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
				r.number(first + i)
				began := time.Now()
				if _, err := c.exchange(r.text); err != nil {
					errs[k] = err
					return
				}
				s.took[i] = time.Since(began)
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
