package main

import (
	"fmt"
	"sync"
	"time"
)

// idling measures what memory a gateway takes at which nothing is asked, and what each HTTP session adds.
func (r *run) idling() error {
	o, err := r.gatewayWith("gateway", r.manyBackends(http1)).open(r)
	if err != nil {
		return err
	}
	defer o.close()
	for i := range 20 { // so that all of them are up
		if _, err := o.client.calls(1, 1, call{fmt.Sprintf("b%d_tool_0", i), 32}); err != nil {
			return err
		}
	}
	pid := o.between.pid()
	empty := settled(pid)
	r.report.note(idleMemory, float64(empty)/1e6, "MB")
	address := o.client.(*web).address

	crowd := newWeb(address, "/mcp")
	defer crowd.close()
	for range r.plan.sessions {
		if err := initialize(crowd.anew()); err != nil {
			return err
		}
	}
	full := settled(pid)
	r.report.note(sessionMemory, perOne(full-empty, r.plan.sessions), "KiB")

	for range r.plan.streams {
		w := newWeb(address, "/mcp")
		defer w.close()
		if err := initialize(w); err != nil {
			return err
		}
		if err := w.listen(); err != nil {
			return err
		}
	}
	r.report.note(streamMemory, perOne(settled(pid)-full, r.plan.streams), "KiB")
	return nil
}

func perOne(bytes, n int) float64 { return float64(bytes) / float64(n) / 1024 }

// listen opens the stream of a session, and leaves it open.
func (w *web) listen() error {
	c, err := w.conn(0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\nMCP-Protocol-Version: 2025-11-25\r\n\r\n", w.path, w.address, w.session)
	if err != nil {
		return err
	}
	h, err := readHead(c.r)
	if err == nil && !h.events {
		err = fmt.Errorf("no stream: %s", h.first)
	}
	return err
}

// settled returns the resident memory of a process once it does not change any more, for longer than the gateway takes to
// see that it has nothing to do and gives back what it does not need.
func settled(pid int) int {
	last, since := resident(pid), time.Now()
	for began := time.Now(); time.Since(since) < 6*time.Second && time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		if now := resident(pid); now < last-64<<10 || now > last+64<<10 {
			last, since = now, time.Now()
		}
	}
	return resident(pid)
}

// keepCalling keeps n calls in flight until stop is closed, and returns when the last has ended. They begin
// one after the other, over a second.
func (w *web) keepCalling(n int, of call, stop <-chan struct{}) error {
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
				r.number(i)
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
