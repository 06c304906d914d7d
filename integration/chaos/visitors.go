//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/wire"
)

// Visitors come beside the clients that stay, do one thing, and go: each is a client of
// its own, with a session of its own.

// receive has visitors come, every now and then until ctx is done, and waits until all are gone.
func (w *world) receive(ctx context.Context, p *phase, round int, every time.Duration) {
	rng := rand.New(rand.NewPCG(w.seed, 3_000_000+uint64(round)))
	var all sync.WaitGroup
	defer all.Wait()
	visits := []struct {
		name string
		pay  func(context.Context, *phase, *client)
	}{
		{"comes and goes", w.passBy}, {"comes and goes", w.passBy}, {"drops everything", w.drop}, {"drops everything", w.drop},
		{"comes and goes", w.passBy}, {"drops everything", w.drop}, {"says what is no MCP", w.babble}, {"says what is no MCP", w.babble},
		{"resumes a stream", w.resume}, {"resumes a stream", w.resume}, {"resumes a stream", w.resume}, {"listens", w.listenIn},
		{"listens", w.listenIn}, {"floods", w.flood}, {"floods", w.flood}, {"does not read", w.stall},
	}
	for n := 0; pause(ctx, rng, every); n++ {
		v := visits[rng.IntN(len(visits))]
		kind := []string{"http", "stateless", "sse"}[rng.IntN(3)]
		switch v.name {
		case "resumes a stream", "floods":
			kind = "http"
		case "listens":
			kind = "stateless"
		}
		c := newClient(w, round*10_000+n, kind, w.backends, true)
		w.tally.fault("client: " + v.name)
		all.Go(func() { v.pay(ctx, p, c) })
	}
}

// enterFor opens a session; what is wrong with that is told.
func (w *world) letIn(ctx context.Context, c *client) bool {
	err := c.way.open(ctx)
	if err != nil && ctx.Err() == nil {
		c.breach("it was not let in: %v", err)
	}
	if err != nil {
		c.way.close(false)
	}
	return err == nil
}

// passBy is a short, polite visit.
func (w *world) passBy(ctx context.Context, p *phase, c *client) {
	if !w.letIn(ctx, c) {
		return
	}
	c.make(ctx, p, 5, 100)
	c.list(ctx, p)
	c.way.close(true)
}

// drop leaves in the middle of calls, without a word.
func (w *world) drop(ctx context.Context, p *phase, c *client) {
	if !w.letIn(ctx, c) {
		return
	}
	gone, leave := context.WithTimeout(ctx, 50*time.Millisecond)
	defer leave()
	c.make(gone, p, 8, 400)
	c.way.close(false)
}

// flood makes more calls at one time than a session may have.
func (w *world) flood(ctx context.Context, p *phase, c *client) {
	if !w.letIn(ctx, c) {
		return
	}
	var all sync.WaitGroup
	for range inFlight + 10 {
		d := c.script.echo(w.byName["s0"])
		d.tool, d.rude = "slow", "flood"
		d.args = strings.Replace(d.args, "{", `{"ms":100,`, 1)
		all.Go(func() { c.do(ctx, p, d) })
	}
	all.Wait()
	c.way.close(true)
}

// babble sends what is no MCP, no JSON, or no HTTP, and looks that it is told so.
func (w *world) babble(ctx context.Context, _ *phase, c *client) {
	for _, b := range []struct{ method, path, kind, body string }{
		{"POST", "/mcp", "application/json", "{"},
		{"POST", "/mcp", "application/json", strings.Repeat("[", 5000)},
		{"POST", "/mcp", "application/json", "\xff\xfe"},
		{"POST", "/mcp", "text/plain", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"POST", "/mcp", "application/json", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`},
		{"POST", "/message?session=none", "application/json", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"PUT", "/mcp", "application/json", "{}"},
		{"POST", "/nowhere", "application/json", "{}"},
	} {
		req, _ := http.NewRequestWithContext(ctx, b.method, w.url+b.path, strings.NewReader(b.body))
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
			c.breach("%s %s of %.40q is answered with %s", b.method, b.path, b.body, res.Status)
		}
	}
	if conn, err := w.dial(); err == nil {
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"half", conn.RemoteAddr())
	}
}

func (w *world) dial() (net.Conn, error) {
	return net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
}

// unread is more than the system keeps of what a client does not read, which on Linux is some 4 MB.
const unread = 5_000_000

// stall asks for much and does not read for a while. Then all is there, or nothing
// more comes.
func (w *world) stall(ctx context.Context, p *phase, c *client) {
	conn, err := w.dial()
	if err != nil {
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	h := newHTTPWay(c, true)
	huge, _ := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s4__do","arguments":{"fault":"huge","bytes":` + strconv.Itoa(unread) + `},"_meta":` + c.stamp("") + `}}`))
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
	if whole && !bytes.Contains(body, []byte(`"error"`)) && len(body) < unread {
		c.breach("what was not read at once came in part: %d bytes, %.200s", len(body), body)
	}
	w.tally.call(p, "", map[bool]string{true: "read late", false: "not read, and cut off"}[whole], 0, false)
}

// resume leaves the stream of a call in its middle, and asks for the rest.
func (w *world) resume(ctx context.Context, p *phase, c *client) {
	if !w.letIn(ctx, c) {
		return
	}
	defer c.way.close(true)
	h := c.way.(*httpWay)
	d := c.script.echo(w.byName["s1"])
	d.tool, d.token, d.args = "slow", true, strings.Replace(d.args, "{", `{"ms":120,"steps":3,`, 1)
	x, m := c.enter(d)
	defer c.leave(x)
	life, hangUp := context.WithCancel(ctx)
	req, err := h.request(life, http.MethodPost, m, "")
	if err == nil {
		var res *http.Response
		if res, err = h.http.Do(req); err == nil {
			last := ""
			err = eventsWithIDs(res.Body, func(id string, data []byte) bool {
				last = id
				if len(data) > 0 {
					c.hear(data)
					return false
				}
				return true
			})
			hangUp()
			res.Body.Close()
			if err == nil && last != "" {
				err = h.rest(ctx, last)
			}
		}
	}
	hangUp()
	c.judge(ctx, p, x, err)
}

// rest reads what came on a stream behind an event.
func (h *httpWay) rest(ctx context.Context, last string) error {
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
	return events(res.Body, h.c.hear)
}

// eventsWithIDs calls hear with each event's id and data, until it says no.
func eventsWithIDs(r io.Reader, hear func(id string, data []byte) bool) error {
	lines := bufio.NewReader(r)
	id, data := "", []byte(nil)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // that the answer is not there is seen
		}
		line = bytes.TrimRight(line, "\r\n")
		key, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0:
			if id != "" && !hear(id, data) {
				return nil
			}
			data = nil
		case string(key) == "id":
			id = string(value)
		case string(key) == "data":
			data = append(data, value...)
		}
	}
}

// listenIn opens a subscription of 2026-07-28 and hangs up after a while.
func (w *world) listenIn(ctx context.Context, _ *phase, c *client) {
	h := c.way.(*httpWay)
	life, hangUp := context.WithTimeout(ctx, time.Second)
	defer hangUp()
	m := wire.NewRequest("1", "subscriptions/listen", []byte(`{"notifications":{"toolsListChanged":true},"_meta":`+c.stamp("")+`}`))
	req, err := h.request(life, http.MethodPost, m, "")
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
			c.breach("a listen begins with %.300s", data)
		}
		if first = false; bytes.Contains(data, []byte(`"id":1,`)) && ctx.Err() == nil && life.Err() == nil {
			c.breach("a listen has ended: %.300s", data)
		}
	})
	h.http.CloseIdleConnections()
}
