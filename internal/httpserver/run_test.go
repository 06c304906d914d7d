package httpserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// gracefulHandler is a SessionHandler with a grace period.
type gracefulHandler struct{ SessionHandler }

func (g gracefulHandler) Shutdown() {
	time.Sleep(time.Second)
	g.SessionHandler.Shutdown()
}

// When the Server shuts down, requests in flight are answered within the grace period of the
// SessionHandler, and new requests are rejected.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) {
			open := o.OpenSession
			o.OpenSession = func(info SessionInfo, out transport.Writer) SessionHandler {
				return gracefulHandler{open(info, out)}
			}
		})
		key, handler := h.initialize("2025-11-25", nil)
		slow := h.openStream(post(key, requestJSON("1", "hold", "{}")))
		slow.want("1-0", "")
		never := h.openStream(post(key, requestJSON("2", "hold", "{}")))
		never.want("2-0", "")
		own := h.openStream(testRequest{method: "GET", session: key})
		own.want("0-0", "")
		fast := make(chan bool)
		go func() {
			h.want(post(key, requestJSON("3", "hold", "{}")), 200, resultJSON("3", "{}"))
			close(fast)
		}()
		r1, _, r3 := <-h.heldRequests, <-h.heldRequests, <-h.heldRequests
		idleConn, err := h.dial(t.Context(), "", "") // a connection without a request
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stopped := make(chan bool)
		go func() {
			h.stop()
			close(stopped)
		}()
		synctest.Wait()
		r3.Reply([]byte("{}"))
		<-fast
		h.want(testRequest{method: "GET", path: "/readyz"}, 503,
			"not ready: the gateway is ending\n")
		h.want(testRequest{method: "GET", path: "/healthz"}, 200, "ok\n")
		for _, tr := range []testRequest{{body: initializeRequest("2025-11-25")},
			{session: key, body: requestJSON("4", "echo", "{}")}} {
			if res, body := h.do(tr); res.StatusCode != 503 ||
				res.Header.Get("Retry-After") == "" || !strings.Contains(body, "ending") {
				t.Errorf("%d %s", res.StatusCode, body)
			}
		}
		// A response that a call in flight may need.
		h.want(post(key, resultJSON("9", "{}")), 202, "")
		r1.Reply([]byte("{}"))
		slow.want("1-1", resultJSON("1", "{}"))
		slow.wantEnd()
		h.write(handler, logMessage(1), "")
		own.want("0-1", string(logMessage(1).Raw()))
		own.wantEnd()
		never.want("2-1", string(wire.NewErrorResponse("2", errSessionEnded).Raw()))
		never.wantEnd()
		<-stopped
		if took := time.Since(began); took != time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		if _, err := idleConn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("connection without a request: %v", err)
		}
	})
}

// A client that does not read delays the shutdown by closeDrainTimeout at most.
func TestShutdownWithUnreadStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		key, handler := h.initialize("2025-11-25", nil)
		s := h.openStream(testRequest{method: "GET", session: key})
		h.write(handler, wire.NewNotification("x", []byte(`"`+strings.Repeat("x", 100000)+`"`)), "")
		synctest.Wait()
		began := time.Now()
		h.stop()
		if took := time.Since(began); took > closeDrainTimeout {
			t.Errorf("the shutdown took %v", took)
		}
		s.disconnect()
	})
}

// failingListener is a listener whose Accept fails.
type failingListener struct{}

func (failingListener) Accept() (net.Conn, error) { return nil, io.ErrUnexpectedEOF }
func (failingListener) Close() error              { return nil }
func (failingListener) Addr() net.Addr            { return &net.UnixAddr{} }

func TestRunReturnsListenerError(t *testing.T) {
	if err := New(Options{}).Run(t.Context(), failingListener{}); err != io.ErrUnexpectedEOF {
		t.Errorf("Run: %v", err)
	}
}

// A body that does not arrive occupies its connection for bodyTimeout, and does not keep its
// session open.
func TestTricklingBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.IdleTimeout = 10 * time.Second })
		key, _ := h.initialize("2025-11-25", nil)
		r, w := io.Pipe()
		req := h.newRequest(testRequest{session: key})
		req.Body, req.ContentLength = r, 1000
		ended := make(chan bool)
		go func() {
			defer close(ended)
			for {
				if _, err := w.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		began := time.Now()
		res, err := h.client.Do(req)
		r.Close()
		if err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusRequestTimeout {
				t.Errorf("%s", res.Status)
			}
		}
		<-ended
		if took := time.Since(began).
			Truncate(2 * time.Second); took < bodyTimeout || took > bodyTimeout+time.Second {
			t.Errorf("it took %v", took)
		}
		h.wantError(post(key, requestJSON("1", "ping", "{}")), 404, "1", codeSessionNotFound)
	})
}

func TestLEAK_01_SessionsThatAreNotDeleted(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.IdleTimeout = 30 * time.Minute })
		h.want(testRequest{method: "GET", path: "/healthz"}, 200, "ok\n")
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		var heap [3]int64
		// The first round includes memory that the runtime does not return.
		for round := range heap {
			for range 10000 {
				h.want(testRequest{body: initializeRequest("2025-11-25")}, 200, "*")
				<-h.handlers
			}
			synctest.Wait()
			// This includes goroutines of other tests that end late.
			if n := runtime.NumGoroutine() - goroutines; n > 100 {
				t.Errorf("%d goroutines for 10000 idle sessions", n)
			}
			if res, _ := h.do(testRequest{body: initializeRequest(
				"2025-11-25")}); res.StatusCode != 503 {
				t.Errorf("session 10001: %s", res.Status)
			}
			time.Sleep(31 * time.Minute)
			synctest.Wait()
			n, open := runtime.NumGoroutine()-goroutines, len(h.server.sessions.sessions)
			if n > 2 || open != 0 {
				t.Errorf("%d goroutines and %d sessions are left", n, open)
			}
			heap[round] = mcptest.LiveHeap()
		}
		// Leaked sessions would make every round grow. The runtime itself sometimes keeps an
		// additional 0.5 to 1.4 MB from some round on.
		if n := min(heap[1]-heap[0], heap[2]-heap[1]); n > 1<<19 {
			t.Errorf("%d bytes are leaked per 10000 sessions: %d", n, heap)
		}
		h.initialize("2025-11-25", nil)
	})
}

// The memory of the Server per idle session is bounded.
func TestIdleSessionMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(o *Options) { o.OpenSession = openEcho })
		h.want(testRequest{body: initializeRequest("2025-11-25")}, 200, "*")
		heap := mcptest.LiveHeap()
		const n = 2000
		for range n {
			h.want(testRequest{body: initializeRequest("2025-11-25")}, 200, "*")
		}
		synctest.Wait()
		each := (mcptest.LiveHeap() - heap) / n
		t.Logf("%d bytes of heap per session", each)
		if each > 1<<10 {
			t.Errorf("%d bytes of heap per session", each)
		}
	})
}

// certificate returns a certificate for localhost and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// Over HTTP/2 an exchange can outlive its connection. Run used to return before the end of such
// an exchange.
func TestRunWaitsForHTTP2Exchanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cert, roots := certificate(t)
		begun, goOn := make(chan bool), make(chan bool)
		h := newHarness(t, func(o *Options) {
			o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
			o.ValidateHeaders = func(
				*principal.Principal, wire.Message, func(string) []string,
			) *wire.Error {
				close(begun)
				<-goOn
				return nil
			}
		})
		h.pool.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "localhost"}
		h.pool.ForceAttemptHTTP2 = true
		req := h.newRequest(statelessRequest("1", "echo", ""))
		req.URL.Scheme = "https"
		go func() {
			if res, err := h.client.Do(req); err == nil {
				t.Errorf("the response is %s", res.Status)
			}
		}()
		<-begun
		ended := make(chan bool)
		go func() {
			h.stop()
			close(ended)
		}()
		time.Sleep(time.Minute)
		select {
		case <-ended:
			t.Error("Run has returned")
		default:
		}
		close(goOn)
		<-ended
	})
}

func TestTLS(t *testing.T) {
	cert, roots := certificate(t)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			h := newHarness(t, func(o *Options) {
				o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
			})
			h.pool.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "localhost"}
			h.pool.ForceAttemptHTTP2 = proto == "HTTP/2.0"
			send := func(tr testRequest) *http.Response {
				req := h.newRequest(tr)
				req.URL.Scheme = "https"
				res, err := h.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if res.Proto != proto {
					t.Errorf("protocol %s", res.Proto)
				}
				return res
			}
			res := send(testRequest{body: initializeRequest("2025-11-25")})
			res.Body.Close()
			session := res.Header.Get("Mcp-Session-Id")
			s := h.readEvents(send(post(session, requestJSON("1", "hold", "{}"))))
			s.want("1-0", "")
			r := <-h.heldRequests
			r.Notify(progressNotification(1))
			s.want("1-1", string(progressNotification(1).Raw()))
			again := h.readEvents(send(lastSeen(session, "1-0"))) // attaches to the stream
			again.want("1-1", string(progressNotification(1).Raw()))
			r.Reply([]byte("{}"))
			again.want("1-2", resultJSON("1", "{}"))
			again.wantEnd()
			s.disconnect()
			go func() { (<-h.heldRequests).Notify(progressNotification(1)) }()
			alone := h.readEvents(send(statelessRequest("1", "hold", "")))
			alone.want("", string(progressNotification(1).Raw()))
			<-h.handlers // handler of the session
			handler := <-h.handlers
			alone.disconnect()
			if err := <-handler.closed; !errors.Is(err, transport.ErrClosed) {
				t.Errorf("the session was closed: %v", err)
			}
			own := h.readEvents(send(testRequest{method: "GET", session: session}))
			own.want("0-0", "")
			stopped := make(chan bool)
			go func() {
				h.stop()
				close(stopped)
			}()
			own.wantEnd()
			<-stopped
		})
	}
}
