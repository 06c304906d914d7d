package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A backend is an MCP server that does as little work as possible: it searches for the few bytes
// that it needs and echoes the text argument.
type backend struct {
	list  []byte        // tools, as JSON
	delay time.Duration // duration of a call
}

func serveBackend(args []string) error {
	f := flag.NewFlagSet("backend", flag.ExitOnError)
	tools := f.Int("tools", 25, "number of tools")
	name := f.String("name", "b", "prefix of the names of the tools")
	slow := f.Duration("slow", 0, "duration of a call")
	listen := f.String("listen", "", "serve HTTP at this `address`")
	_ = f.Parse(args)
	b := &backend{delay: *slow}
	b.makeTools(*name, *tools)
	if *listen != "" {
		return b.serveHTTP(*listen)
	}
	return b.serveStdio(os.Stdin, os.Stdout)
}

// makeTools generates the list of tools.
func (b *backend) makeTools(name string, tools int) {
	var list bytes.Buffer
	for i := range tools {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list,
			`{"name":"%s_tool_%d","description":"%s","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"limit":{"type":"integer","minimum":1}},"required":["text"]}}`,
			name, i, strings.Repeat("A tool to measure with. ", 12))
	}
	b.list = list.Bytes()
}

func (b *backend) serveStdio(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, 4<<20)
	var mu sync.Mutex // guards w
	var out []byte
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if b.delay > 0 && isCall(line) {
			late := append(b.respond(nil, line), '\n')
			time.AfterFunc(b.delay, func() {
				mu.Lock()
				defer mu.Unlock()
				_, _ = w.Write(late)
			})
			continue
		}
		if out = b.respond(out[:0], line); len(out) == 0 {
			continue
		}
		mu.Lock()
		_, err = w.Write(append(out, '\n'))
		mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func isCall(request []byte) bool {
	return bytes.Contains(request[:min(len(request), 200)], []byte(`"tools/call"`))
}

// respond appends the response to a request, or nothing for a notification.
func (b *backend) respond(out, request []byte) []byte {
	id := field(request, `"id":`)
	if id == nil {
		return out
	}
	out = append(append(append(out, `{"jsonrpc":"2.0","id":`...), id...), ',')
	has := func(method string) bool {
		return bytes.Contains(request[:min(len(request), 200)], []byte(method))
	}
	switch {
	case isCall(request):
		out = append(out, `"result":{"content":[{"type":"text","text":"`...)
		out = append(append(out, text(request)...), `"}]}`...)
	case has(`"tools/list"`):
		out = append(append(append(out, `"result":{"tools":[`...), b.list...), `]}`...)
	case has(`"initialize"`):
		out = append(out,
			`"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`...)
	case has(`"ping"`):
		out = append(out, `"result":{}`...)
	default:
		out = append(out, `"error":{"code":-32601,"message":"Method not found"}`...)
	}
	return append(out, '}')
}

// field returns the number or string after a key; nil = no such key.
func field(message []byte, key string) []byte {
	i := bytes.Index(message, []byte(key))
	if i < 0 {
		return nil
	}
	message = message[i+len(key):]
	return message[:max(0, bytes.IndexAny(message, ",}"))]
}

// text returns the text argument of a call.
func text(call []byte) []byte {
	const key = `"text":"`
	i := bytes.Index(call, []byte(key))
	if i < 0 {
		return nil
	}
	call = call[i+len(key):]
	return call[:max(0, bytes.IndexByte(call, '"'))]
}

// serveHTTP responds to POST requests with JSON, over persistent connections.
func (b *backend) serveHTTP(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() { // exit when the parent closes stdin
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			b.serveConn(conn)
		}()
	}
}

func (b *backend) serveConn(conn net.Conn) {
	r := bufio.NewReaderSize(conn, 64<<10)
	var body, response, out []byte
	for {
		head, err := readHead(r)
		if err != nil {
			return
		}
		if body, err = head.body(r, body[:0]); err != nil {
			return
		}
		status := "405 Method Not Allowed"
		response = response[:0]
		if strings.HasPrefix(head.firstLine, "POST") {
			if b.delay > 0 && isCall(body) {
				time.Sleep(b.delay)
			}
			response = b.respond(response, body)
			status = "200 OK"
			if len(response) == 0 {
				status = "202 Accepted"
			}
		}
		out = fmt.Appendf(out[:0],
			"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", status,
			len(response))
		if _, err := conn.Write(append(out, response...)); err != nil {
			return
		}
	}
}

// An httpHead is the part of the head of an HTTP message that bench uses.
type httpHead struct {
	firstLine string // request line or status line
	length    int
	chunked   bool
	events    bool
	session   string
}

// readHead reads the head of a request or response.
func readHead(r *bufio.Reader) (h httpHead, err error) {
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			h.firstLine = string(line)
			continue
		}
		if len(line) == 0 {
			return h, nil
		}
		key, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(key, []byte("Content-Length")):
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return h, err
			}
		case bytes.EqualFold(key, []byte("Transfer-Encoding")):
			h.chunked = true
		case bytes.EqualFold(key, []byte("Content-Type")):
			h.events = bytes.HasPrefix(value, []byte("text/event-stream"))
		case bytes.EqualFold(key, []byte("Mcp-Session-Id")):
			h.session = string(value)
		}
	}
}

// body appends the body that follows a head.
func (h httpHead) body(r *bufio.Reader, to []byte) ([]byte, error) {
	if h.chunked {
		text, err := io.ReadAll(httputil.NewChunkedReader(r))
		if err == nil {
			_, err = r.ReadSlice('\n') // after the last chunk
		}
		return append(to, text...), err
	}
	if cap(to) < h.length {
		to = make([]byte, 0, h.length)
	}
	to = to[:h.length]
	_, err := io.ReadFull(r, to)
	return to, err
}
