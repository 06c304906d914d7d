package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
	"mcpgateway/internal/reload"
	"mcpgateway/internal/sdnotify"
)

// readyWait limits the wait for backends before systemd is told that the gateway is ready,
// because systemd stops a service that is not ready within TimeoutStartSec (usually 90 s).
const readyWait = 30 * time.Second

// The times between two reports to systemd: while the gateway waits for backends, and later.
const (
	startingInterval = 200 * time.Millisecond
	servingInterval  = 5 * time.Second
)

// A systemdReporter reports the state of a service to systemd: that it is ready, when each backend
// has listed its tools or failed; a text about its backends; and for the watchdog, that it works.
// With a nil notifier it reports nothing.
type systemdReporter struct {
	notifier *sdnotify.Notifier
	readyURL string // of /readyz; "" = the gateway serves stdin and stdout only
	status   func() []backends.Status
	log      *slog.Logger
	client   *http.Client // see probe
	ready    atomic.Bool  // systemd was told that the gateway is ready
}

// newSystemdReporter returns a reporter for s. readyURL may be "".
func newSystemdReporter(n *sdnotify.Notifier, s *service, readyURL string) *systemdReporter {
	return &systemdReporter{
		notifier: n, readyURL: readyURL, status: s.backends.Status, log: s.log,
		client: &http.Client{
			Timeout: n.Watchdog() / 2,
			// A new connection for each request shows that the gateway still accepts connections.
			// The request goes to this process, and contains no secret.
			Transport: &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			},
		},
	}
}

// readyURL returns the URL of /readyz on this machine, for a gateway with configuration c that
// listens at addr.
func readyURL(c *config.Config, addr net.Addr) string {
	own := *c
	host, _, _ := net.SplitHostPort(c.Listen)
	_, port, _ := net.SplitHostPort(addr.String())
	own.Listen = net.JoinHostPort(host, port)
	at, err := listenURL(&own)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(at, "/healthz") + "/readyz"
}

// run reports until ctx is done, and then that the gateway stops.
func (r *systemdReporter) run(ctx context.Context) {
	if r.notifier == nil {
		return
	}
	began := time.Now()
	interval := servingInterval
	if w := r.notifier.Watchdog(); w > 0 {
		interval = min(interval, w/3)
	}
	tick := time.NewTicker(min(interval, startingInterval))
	defer tick.Stop()
	last := ""
	for ctx.Err() == nil {
		text, settled := r.describe()
		switch {
		case r.ready.Load():
			if text != last {
				r.send(sdnotify.Status(text))
			}
			r.sendAlive(ctx)
		case settled || time.Since(began) >= readyWait:
			r.send(sdnotify.Ready, sdnotify.Status(text))
			r.ready.Store(true)
			tick.Reset(interval)
		case text != last:
			r.send(sdnotify.Status(text))
		}
		last = text
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	r.send(sdnotify.Stopping, sdnotify.Status("stopping"))
}

// describe returns a text about the backends, and whether the gateway need not wait for any. The
// backends of a client on stdin are started by the client.
func (r *systemdReporter) describe() (text string, settled bool) {
	all := enabled(r.status())
	waiting := unsettled(all)
	var broken []string
	working := 0
	for _, s := range all {
		switch {
		case !s.Settled:
		case s.State == backends.Ready, s.State == backends.Stopped && s.Err == nil:
			working++
		default:
			broken = append(broken, s.Name+" ("+string(s.State)+")")
		}
	}
	text = fmt.Sprintf("backends: %d of %d work", working, len(all))
	if len(broken) > 0 {
		text += "; not: " + reload.NameList(broken)
	}
	if r.readyURL == "" {
		return text, true
	}
	if len(waiting) > 0 {
		text += "; starting: " + reload.NameList(waiting)
	}
	return text, len(waiting) == 0
}

// sendAlive tells the watchdog of systemd that the gateway works, if it does. A gateway that hangs
// therefore is restarted.
func (r *systemdReporter) sendAlive(ctx context.Context) {
	if r.notifier.Watchdog() == 0 {
		return
	}
	if err := r.probe(ctx); err != nil {
		if ctx.Err() == nil {
			r.log.Warn("the gateway does not respond to itself: systemd will restart it", "err", err)
		}
		return
	}
	r.send(sdnotify.Alive)
}

// probe returns an error if the gateway does not respond to a request to its own address. Each
// response counts: the request has passed the listener, the HTTP server and the state of each
// backend. Without HTTP, describe has shown that the backends respond.
func (r *systemdReporter) probe(ctx context.Context) error {
	if r.readyURL == "" {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.readyURL, nil)
	if err != nil {
		return err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.Header.Get("Server") != httpserver.ServerHeader {
		return fmt.Errorf("%s is not the gateway", strings.TrimSuffix(r.readyURL, "/readyz"))
	}
	return nil
}

// reloading reports the start of a reload, and returns a function that reports its end.
func (r *systemdReporter) reloading() (done func()) {
	if r.notifier == nil || !r.ready.Load() {
		return func() {}
	}
	r.send(sdnotify.Reloading())
	return func() { r.send(sdnotify.Ready) }
}

func (r *systemdReporter) send(assignments ...string) {
	if err := r.notifier.Send(assignments...); err != nil {
		r.log.Warn("cannot notify systemd", "err", err)
	}
}
