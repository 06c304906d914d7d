//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpgateway/internal/sse"
	"mcpgateway/internal/wire"
)

// Short clients connect, perform one task and disconnect. Each short client of the legacy
// generation has a session of its own. All short clients of the modern generation are one stateless
// client.

// shortClients are the short clients of a phase.
type shortClients struct {
	*harness
	phase *phase
}

// run starts short clients repeatedly until ctx is done, and then waits for all of them.
func (w *shortClients) run(ctx context.Context, round int, every time.Duration) {
	rng := rand.New(rand.NewPCG(w.seed, 3_000_000+uint64(round)))
	var all sync.WaitGroup
	defer all.Wait()
	kinds := []struct {
		name string
		run  func(context.Context, *client)
	}{
		{"calls and leaves", w.callAndLeave}, {"calls and leaves", w.callAndLeave},
		{"disconnects", w.disconnectDuringCalls}, {"disconnects", w.disconnectDuringCalls},
		{"calls and leaves", w.callAndLeave}, {"disconnects", w.disconnectDuringCalls},
		{"sends invalid messages", w.sendInvalid}, {"sends invalid messages", w.sendInvalid},
		{"resumes a stream", w.resumeStream}, {"resumes a stream", w.resumeStream},
		{"resumes a stream", w.resumeStream}, {"listens", w.listenBriefly},
		{"listens", w.listenBriefly}, {"floods", w.flood}, {"floods", w.flood},
		{"does not read", w.readLate},
	}
	for n := 0; pause(ctx, rng, every); n++ {
		k := kinds[rng.IntN(len(kinds))]
		kind := []string{"http", "stateless", "sse"}[rng.IntN(3)]
		switch k.name {
		case "resumes a stream", "floods":
			kind = "http"
		case "listens":
			kind = "stateless"
		}
		c := newClient(w.harness, round*10_000+n, kind, w.backends, true)
		w.stats.countFault("client: " + k.name)
		all.Go(func() { k.run(ctx, c) })
	}
}

// connect opens a session and counts a failure as a broken promise.
func (w *shortClients) connect(ctx context.Context, c *client) bool {
	err := c.transport.open(ctx)
	if err != nil && ctx.Err() == nil {
		c.breach("cannot connect: %v", err)
	}
	if err != nil {
		c.transport.close(false)
	}
	return err == nil
}

// callAndLeave makes a few calls and ends its session.
func (w *shortClients) callAndLeave(ctx context.Context, c *client) {
	if !w.connect(ctx, c) {
		return
	}
	c.makeCalls(ctx, w.phase, 5, 100)
	c.list(ctx, w.phase)
	c.transport.close(true)
}

// disconnectDuringCalls disconnects while calls are in flight.
func (w *shortClients) disconnectDuringCalls(ctx context.Context, c *client) {
	if !w.connect(ctx, c) {
		return
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	c.makeCalls(short, w.phase, 8, 400)
	c.transport.close(false)
}

// flood makes more calls at once than a session may have in flight.
func (w *shortClients) flood(ctx context.Context, c *client) {
	if !w.connect(ctx, c) {
		return
	}
	var all sync.WaitGroup
	for range maxInFlight + 10 {
		d := c.script.echo(w.byName["s0"])
		d.tool, d.clientFault = "slow", "flood"
		d.args = strings.Replace(d.args, "{", `{"ms":100,`, 1)
		all.Go(func() { c.perform(ctx, w.phase, d) })
	}
	all.Wait()
	c.transport.close(true)
}

// sendInvalid sends requests that are not valid MCP, JSON or HTTP, and checks that the gateway
// rejects them.
func (w *shortClients) sendInvalid(ctx context.Context, c *client) {
	for _, b := range []struct{ method, path, kind, body string }{
		{"POST", "/mcp", "application/json", "{"},
		{"POST", "/mcp", "application/json", strings.Repeat("[", 5000)},
		{"POST", "/mcp", "application/json", "\xff\xfe"},
		{"POST", "/mcp", "text/plain", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"POST", "/mcp", "application/json", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`},
		{"POST", "/message?session=none", "application/json",
			`{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"PUT", "/mcp", "application/json", "{}"},
		{"POST", "/nowhere", "application/json", "{}"},
	} {
		body := strings.NewReader(b.body)
		req, _ := http.NewRequestWithContext(ctx, b.method, w.gateway.url+b.path, body)
		req.Header.Set("Content-Type", b.kind)
		req.Header.Set("Accept", "application/json, text/event-stream")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				c.breach("%s %s of %.40q: %v", b.method, b.path, b.body, err)
			}
			continue
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode < 400 || res.StatusCode >= 500 {
			c.breach("%s %s of %.40q returned %s", b.method, b.path, b.body, res.Status)
		}
	}
	if conn, err := w.dial(); err == nil {
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
			"Content-Length: 1000\r\n\r\n{\"half", conn.RemoteAddr())
	}
}

func (w *shortClients) dial() (net.Conn, error) {
	return net.Dial("tcp", strings.TrimPrefix(w.gateway.url, "http://"))
}

// unreadBytes exceeds the bytes that the kernel buffers for a connection of dialSmall (about 80 KB
// on Linux). With the default buffers a response of 5 MB would be necessary, which takes 40 ms of
// processor time. A third of the slow calls to healthy backends were made during such a response,
// so that chaos measured the load of the machine.
const unreadBytes = 500_000

// dialSmall connects with a small receive buffer and small packets, so that the kernel buffers only
// few bytes of a response that the client does not read.
func (w *shortClients) dialSmall() (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if failed := c.Control(func(fd uintptr) {
			err = errors.Join(
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096),
				syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1460))
		}); failed != nil {
			return failed
		}
		return err
	}}
	return d.Dial("tcp", strings.TrimPrefix(w.gateway.url, "http://"))
}

// readLate requests a large response and does not read for about a second. It then checks that the
// response is complete or the connection is closed.
func (w *shortClients) readLate(ctx context.Context, c *client) {
	conn, err := w.dialSmall()
	if err != nil {
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	h := newHTTPTransport(c, true)
	huge, _ := wire.Parse(
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s4__do",` +
			`"arguments":{"fault":"huge","bytes":` + strconv.Itoa(unreadBytes) + `},"_meta":` +
			c.requestMeta("") + `}}`))
	req, _ := h.request(ctx, http.MethodPost, huge, "s4__do")
	req.Header.Set("Connection", "close")
	if err := req.Write(conn); err != nil {
		return
	}
	rng := c.script.rng
	if !pause(ctx, rng, time.Second) {
		return
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	whole := err == nil && len(body) > 0
	if whole && !bytes.Contains(body, []byte(`"error"`)) && len(body) < unreadBytes {
		c.breach("a response that was read late is incomplete: %d bytes, %.200s", len(body), body)
	}
	w.stats.countCall(w.phase, "", map[bool]string{true: "read late",
		false: "not read; connection closed"}[whole], 0, false)
}

// resumeStream disconnects from the stream of a call and requests the rest.
func (w *shortClients) resumeStream(ctx context.Context, c *client) {
	if !w.connect(ctx, c) {
		return
	}
	defer c.transport.close(true)
	h := c.transport.(*httpTransport)
	d := c.script.echo(w.byName["s1"])
	d.tool, d.token, d.args = "slow", true, strings.Replace(d.args, "{", `{"ms":120,"steps":3,`, 1)
	x, m := c.newCall(d)
	defer c.endCall(x)
	callCtx, disconnect := context.WithCancel(ctx)
	req, err := h.request(callCtx, http.MethodPost, m, "")
	if err == nil {
		var res *http.Response
		if res, err = h.http.Do(req); err == nil {
			stream := sse.NewReader(maxEvent, nil)
			stream.Open(res.Body)
			if event, err := stream.Next(); err == nil {
				c.receive(event.Data)
			} // otherwise recordOutcome reports the missing response
			disconnect()
			res.Body.Close()
			if stream.LastEventID != "" {
				err = h.resumeAfter(ctx, stream.LastEventID)
			}
		}
	}
	disconnect()
	c.recordOutcome(ctx, w.phase, x, err)
}

// resumeAfter reads the events of a stream after the event with the id last.
func (h *httpTransport) resumeAfter(ctx context.Context, last string) error {
	req, err := h.request(ctx, http.MethodGet, wire.Message{}, "")
	if err != nil {
		return err
	}
	req.Body, req.ContentLength = nil, 0
	req.Header.Set("Last-Event-ID", last)
	res, err := h.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("resuming: %s", res.Status)
	}
	return events(res.Body, h.c.receive)
}

// listenBriefly opens a subscriptions/listen stream and disconnects after a second.
func (w *shortClients) listenBriefly(ctx context.Context, c *client) {
	h := c.transport.(*httpTransport)
	listenCtx, disconnect := context.WithTimeout(ctx, time.Second)
	defer disconnect()
	m := wire.NewRequest("1", "subscriptions/listen",
		[]byte(`{"notifications":{"toolsListChanged":true},"_meta":`+c.requestMeta("")+`}`))
	req, err := h.request(listenCtx, http.MethodPost, m, "")
	if err != nil {
		return
	}
	res, err := h.http.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	first := true
	_ = events(res.Body, func(data []byte) {
		if first && !bytes.Contains(data, []byte("subscriptions/acknowledged")) {
			c.breach("a listen stream begins with %.300s", data)
		}
		if first = false; bytes.Contains(data, []byte(`"id":1,`)) && ctx.Err() == nil &&
			listenCtx.Err() == nil {
			c.breach("a listen stream has ended: %.300s", data)
		}
	})
	h.http.CloseIdleConnections()
}
