package main

import (
	"fmt"
	"sync"
	"time"
)

// measureMemory measures the memory of an idle gateway, the memory per idle HTTP session, and the
// memory per HTTP session with an open stream.
func (r *benchmark) measureMemory() error {
	o, err := r.gatewayVariant("gateway", r.twentyBackends(http1)).open(r)
	if err != nil {
		return err
	}
	defer o.close()
	for i := range 20 { // wait until all backends have started
		if _, err := o.client.makeCalls(1, 1,
			callSpec{fmt.Sprintf("b%d_tool_0", i), 32}); err != nil {
			return err
		}
	}
	pid := o.measured.pid()
	empty := awaitStableMemory(pid)
	r.report.addFigure(idleMemory, float64(empty)/1e6, "MB")
	address := o.client.(*httpClient).address

	others := newHTTPClient(address, "/mcp")
	defer others.close()
	for range r.plan.sessions {
		if err := initialize(others.withoutSession()); err != nil {
			return err
		}
	}
	full := awaitStableMemory(pid)
	r.report.addFigure(sessionMemory, kibPerItem(full-empty, r.plan.sessions), "KiB")

	for range r.plan.streams {
		w := newHTTPClient(address, "/mcp")
		defer w.close()
		if err := initialize(w); err != nil {
			return err
		}
		if err := w.openStream(); err != nil {
			return err
		}
	}
	r.report.addFigure(streamMemory, kibPerItem(awaitStableMemory(pid)-full, r.plan.streams), "KiB")
	return nil
}

func kibPerItem(bytes, n int) float64 { return float64(bytes) / float64(n) / 1024 }

// openStream opens the standalone stream of the session and leaves it open.
func (w *httpClient) openStream() error {
	c, err := w.conn(0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c,
		"GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\nMCP-Protocol-Version: 2025-11-25\r\n\r\n", w.path, w.address, w.session)
	if err != nil {
		return err
	}
	h, err := readHead(c.r)
	if err == nil && !h.events {
		err = fmt.Errorf("not a stream: %s", h.firstLine)
	}
	return err
}

// awaitStableMemory waits, at most for a minute, until the resident memory of a process is stable,
// and returns it. It must be stable for longer than an idle gateway needs to return memory to the
// system.
func awaitStableMemory(pid int) int {
	last, since := residentBytes(pid), time.Now()
	for began := time.Now(); time.Since(since) < 6*time.Second &&
		time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		if now := residentBytes(pid); now < last-64<<10 || now > last+64<<10 {
			last, since = now, time.Now()
		}
	}
	return residentBytes(pid)
}

// keepCalling keeps n calls in flight until stop is closed, and returns when the last call has
// ended. It distributes the starts of the first n calls evenly over one second.
func (w *httpClient) keepCalling(n int, of callSpec, stop <-chan struct{}) error {
	if _, err := w.conn(n - 1); err != nil {
		return err
	}
	length := len(of.request("", "").text)
	var all sync.WaitGroup
	failed := make(chan error, n)
	for k := range n {
		all.Go(func() {
			c := w.conns[k]
			r := of.request(w.head(length), "")
			time.Sleep(time.Duration(k) * time.Second / time.Duration(n))
			for i := w.next + k; ; i += n {
				select {
				case <-stop:
					return
				default:
				}
				r.setID(i)
				if _, err := c.exchange(r.text); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
