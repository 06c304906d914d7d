package main

import (
	"fmt"
	"sync"
	"time"
)

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
