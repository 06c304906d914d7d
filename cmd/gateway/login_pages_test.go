package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"mcpgateway/internal/logging"
	"mcpgateway/internal/loginpage"
	"mcpgateway/internal/oauthclient"
)

// noLogin is a Beginner that cannot begin a login.
type noLogin struct{}

func (*noLogin) BeginLogin(context.Context, string) (*oauthclient.Login, error) {
	return nil, errors.New("no login")
}

func openLoginPages(t *testing.T) *loginPages {
	p := newLoginPages(logging.NewMask())
	t.Cleanup(p.close)
	return p
}

// get returns the status of a page.
func getStatus(t *testing.T, address, host string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// A gateway without an HTTP server listens on this machine, once for each port, when the first page
// is opened.
func TestLoginPagesListenOnceForEachPort(t *testing.T) {
	p := openLoginPages(t)
	var mu sync.Mutex
	hosts := map[string]bool{}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			address, _, err := p.Open(loginpage.LoginRequest{Login: new(noLogin)})
			if err != nil {
				t.Error(err)
				return
			}
			u, _ := url.Parse(address)
			mu.Lock()
			hosts[u.Host] = true
			mu.Unlock()
			if s := getStatus(t, address, ""); s != http.StatusOK {
				t.Errorf("the page has status %d", s)
			}
			if s := getStatus(t, address, "evil.example"); s != http.StatusForbidden {
				t.Errorf("the page of another host has status %d", s)
			}
		})
	}
	all.Wait()
	if len(hosts) != 1 {
		t.Errorf("listens at %v", hosts)
	}
}

// A port that is in use is an error, for the pages with this port only, until it is free.
func TestLoginPagesNeedTheirPort(t *testing.T) {
	p := openLoginPages(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	open := func(port int) (string, error) {
		address, _, err := p.Open(loginpage.LoginRequest{Login: new(noLogin), RedirectPort: port})
		return address, err
	}
	if _, err := open(port); err == nil {
		t.Error("opened although the port is in use")
	}
	if _, err := open(0); err != nil {
		t.Errorf("another port: %v", err)
	}
	l.Close()
	address, err := open(port)
	if err != nil || !strings.Contains(address, ":"+strconv.Itoa(port)+"/login/") {
		t.Errorf("%s, %v", address, err)
	}
}

// No goroutine is left when the pages are closed, and none begins later.
func TestLoginPagesEndTheirServers(t *testing.T) {
	p := newLoginPages(logging.NewMask())
	address, err := p.base(0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := p.base(0); err != nil && err != http.ErrServerClosed {
				t.Error(err)
			}
		})
	}
	p.close()
	all.Wait()
	if _, err := p.base(0); err != http.ErrServerClosed {
		t.Errorf("after the end: %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is open: %v", err)
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(address, "http://")); err == nil {
		c.Close()
		t.Error("the port is open")
	}
}
