package httpclient

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A compressor is a compressing writer that can flush.
type compressor interface {
	io.WriteCloser
	Flush() error
}

var compressors = map[string]func(io.Writer) compressor{
	"gzip":    func(w io.Writer) compressor { return gzip.NewWriter(w) },
	"X-GZip":  func(w io.Writer) compressor { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) compressor { return zlib.NewWriter(w) },
	"Deflate": func(w io.Writer) compressor { raw, _ := flate.NewWriter(w, 6); return raw },
}

func compress(coding, text string) []byte {
	var b bytes.Buffer
	p := compressors[coding](&b)
	io.WriteString(p, text)
	p.Close()
	return b.Bytes()
}

// Bodies in gzip and deflate are read, although only identity is requested.
func TestHTTPCodings_F_HTTP_2(t *testing.T) {
	const text = `{"jsonrpc":"2.0","id":101,"result":{"a":1}}`
	type reply struct {
		coding string
		body   []byte
		want   string // in the error
	}
	replies := map[string]reply{
		"two codings": {"deflate, gzip",
			compress("gzip", string(compress("deflate", text))), ""},
		"identity": {"identity", []byte(text), ""},
		"two members": {"gzip",
			append(compress("gzip", text[:10]), compress("gzip", text[10:])...), ""},
		"padding":             {"gzip", append(compress("gzip", text), 0, 0, 0), ""},
		"not compressed":      {"gzip", []byte(text), ""},
		"also not compressed": {"deflate", []byte(text), ""},
		"br": {"br", []byte("\x0b\x02\x80"),
			`the answer cannot be read: the body has the Content-Encoding "br"`},
		"br within gzip": {"br, gzip", compress("gzip", "\x0b"), `Content-Encoding "br"`},
		"zstd":           {"zstd", []byte("\x28\xb5\x2f\xfd"), `Content-Encoding "zstd"`},
		"many": {"gzip, gzip, gzip, gzip", compress("gzip", text),
			"more than 3 codings"},
		"cut": {"gzip", compress("gzip", text)[:30],
			"the connection broke before the answer was complete: unexpected EOF"},
		"cut in the header": {"gzip", compress("gzip", text)[:5], "unexpected EOF"},
		"damaged": {"gzip", append(compress("gzip", text)[:20], "damage, damage"...),
			"the answer was complete"},
		"empty": {"gzip", nil, "the answer is not a JSON-RPC response: HTTP 200 OK"},
	}
	for coding := range compressors {
		replies[coding] = reply{coding, compress(coding, text), ""}
	}
	for name, reply := range replies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
					w.Header().Set("Content-Encoding", reply.coding)
					w.Write(reply.body)
				}
				c := ready(t, s, nil)
				c.call("tools/call")
				if reply.want == "" {
					c.want(text)
				} else {
					wantErrorText(t, c.wantLost("101", true), reply.want)
				}
				if a := s.requests("tools/call")[0]; a.header.Get("Accept-Encoding") != "identity" {
					t.Errorf("Accept-Encoding: %s", a.header.Get("Accept-Encoding"))
				}
			})
		})
	}
}

func TestHTTPCodingOfAnError_F_HTTP_2(t *testing.T) {
	for coding, body := range map[string][]byte{"gzip": compress("gzip",
		`{"error":"invalid_token"}`), "br": []byte("\x0b")} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t)
			s.post = func(w http.ResponseWriter, _ *http.Request, _ wire.Message) {
				w.Header().Set("Content-Encoding", coding)
				w.WriteHeader(401)
				w.Write(body)
			}
			c := ready(t, s, nil)
			want := map[string]string{"gzip": `HTTP 401 Unauthorized: {"error":"invalid_token"}`,
				"br": `HTTP 401 Unauthorized: the body has the Content-Encoding "br"`}
			wantErrorText(t, c.wantLost(c.call("tools/call"), false), want[coding])
		})
	}
}

// Events of a compressed stream arrive when the server flushes them.
func TestHTTPCodingOfStreams_F_HTTP_2(t *testing.T) {
	for coding := range compressors {
		for _, members := range []bool{false, true} { // true = each event is a gzip member
			if members && !strings.EqualFold(coding, "gzip") {
				continue
			}
			t.Run(fmt.Sprint(coding, members), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub(t)
					next := make(chan bool)
					s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
						w.Header().Set("Content-Encoding", coding)
						w.Header().Set("Content-Type", "text/event-stream")
						p := compressors[coding](w)
						for _, e := range []string{messageEvent(serverNotification(1)),
							messageEvent(serverNotification(2)), messageEvent(resultOf(m, "{}"))} {
							io.WriteString(p, e)
							if p.Flush(); members {
								p.Close()
								p = compressors[coding](w)
							}
							w.(http.Flusher).Flush()
							<-next
						}
						blockUntilAborted(r)
					}
					c := ready(t, s, nil)
					c.call("tools/call")
					for _, text := range []string{serverNotification(1), serverNotification(2),
						`{"jsonrpc":"2.0","id":101,"result":{}}`} {
						c.want(text) // while the stream is open
						next <- true
					}
				})
			})
		}
	}
}

// Reading a decompression bomb fails, and takes little memory and time.
func TestHTTPDecompressionBombs_F_HTTP_2(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	for kind, want := range map[string]string{
		"application/json":  "the answer is longer than limits.message (1048576 bytes)",
		"text/event-stream": "more than 200 times as long",
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.post = func(w http.ResponseWriter, _ *http.Request, m wire.Message) {
					w.Header().Set("Content-Encoding", "gzip")
					w.Header().Set("Content-Type", kind)
					w.Write(bomb.Bytes())
				}
				c := ready(t, s, nil)
				wantErrorText(t, c.wantLost(c.call("tools/call"), true), want)
			})
		})
	}
}

// A cookie that the server sets is sent with each later request of the Conn.
func TestHTTPCookies_F_HTTP_4(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.init = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			w.Header().Add("Set-Cookie", "NODE=node-zero; Path=/; HttpOnly")
			w.Header().Add("Set-Cookie", "OTHER=x; Domain=other.test")
			writeResult(w, m,
				`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"stub","version":"1"}}`)
		}
		tries := 0
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			switch tries++; {
			case m.Method() == "tools/list" && tries < 3:
				w.WriteHeader(502) // the request is retried
			case m.Method() == "tools/call":
				http.Error(w, "no "+r.Header.Get("Cookie")+" here", 500)
			default:
				w.Header().Add("Set-Cookie", "NODE=node-one; Path=/")
				writeResult(w, m, "{}")
			}
		}
		c := ready(t, s, func(o *Options) { o.Headers = map[string]string{"Cookie": "mine=1"} })
		c.call("tools/list")
		c.read()
		err := c.wantLost(c.call("tools/call"), true)
		wantErrorText(t, err, "no ***; NODE=*** here")
		synctest.Wait()
		for _, a := range s.requests("tools/list") {
			if got := a.header.Get("Cookie"); got != "mine=1; NODE=node-zero" {
				t.Errorf("tools/list has the cookie %q", got)
			}
		}
		if got := s.requests("tools/call")[0].header.Get("Cookie"); got != "mine=1; NODE=node-one" {
			t.Errorf("tools/call has the cookie %q", got)
		}
		if got := s.requests("GET")[0].header.Get("Cookie"); got != "mine=1; NODE=node-zero" {
			t.Errorf("GET has the cookie %q", got)
		}
		if got := s.requests("initialize")[0].header.Get("Cookie"); got != "mine=1" {
			t.Errorf("initialize has the cookie %q", got)
		}
		other := dialStub(t, s, nil) // another Conn has no cookies
		other.call("initialize")
		other.read()
		if got := s.requests("initialize")[1].header.Get("Cookie"); got != "" {
			t.Errorf("another Conn has the cookie %q", got)
		}
		if strings.Contains(s.log.String(), "node-") {
			t.Errorf("a cookie is logged: %s", s.log.String())
		}
	})
}

func TestSSECookies_F_HTTP_4(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSSEStub(t)
		get := s.get
		s.get = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", "NODE=0; Path=/")
			get(w, r)
		}
		s.ready(t)
		synctest.Wait()
		for _, a := range s.requests("POST") {
			if got := a.header.Get("Cookie"); got != "NODE=0" {
				t.Errorf("%s has the cookie %q", a.method, got)
			}
		}
	})
}

func TestCookiesAreBounded_F_HTTP_4(t *testing.T) {
	j := newCookieJar()
	u, _ := url.Parse("http://stub.test/mcp")
	for i := range 10 * maxCookies {
		j.SetCookies(u,
			[]*http.Cookie{{Name: fmt.Sprint("c", i), Value: "v", Path: "/"},
				{Name: fmt.Sprint("p", i), Value: "v", Path: fmt.Sprint("/", i)}})
		if n := len(j.values); n > maxCookies {
			t.Fatalf("%d cookies are kept", n)
		}
	}
	j.SetCookies(u, []*http.Cookie{{Name: "long", Value: strings.Repeat("x", maxCookie)}})
	for _, c := range j.Cookies(u) {
		if c.Name == "long" {
			t.Error("a cookie that is too long is kept")
		}
	}
	if len(j.Cookies(u)) == 0 {
		t.Error("no cookie is kept")
	}
}

// The configured header Host is the host of the requests.
func TestHTTPHost_F_HTTP_5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.post = func(w http.ResponseWriter, r *http.Request, m wire.Message) {
			http.Error(w, "unknown host "+r.Host, 500)
		}
		c := ready(t, s,
			func(o *Options) {
				o.Headers = map[string]string{"host": "docs.example:8443",
					"X-Key": "k"}
			})
		wantErrorText(t, c.wantLost(c.call("tools/call"), true), "unknown host docs.example:8443")
		synctest.Wait()
		c.Close()
		for _, a := range s.received {
			if a.host != "docs.example:8443" || a.header.Get("Host") != "" ||
				a.header.Get("X-Key") != "k" {
				t.Errorf("%s %s: host %s, %v", a.verb, a.method, a.host, a.header)
			}
		}
	})
}

// certificate returns a certificate with its key, signed by signer; nil = self-signed.
func certificate(t *testing.T, name string, signer *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: signer == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	parent, parentKey := template, any(key)
	if signer != nil {
		parent, parentKey = signer.Leaf, signer.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// writeCertificate writes a certificate and its key to files.
func writeCertificate(t *testing.T, c tls.Certificate) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE",
		Bytes: c.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// A server that requires a certificate may close the connection without an alert. The error has the
// same hint as after an alert, but not if the server has asked for no certificate.
func TestClientTLS_NoAlert(t *testing.T) {
	authority := certificate(t, "authority", nil)
	ca, _ := writeCertificate(t, authority)
	for auth, hint := range map[tls.ClientAuthType]bool{
		tls.RequestClientCert: true, tls.NoClientCert: false,
	} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{ClientAuth: auth,
			Certificates: []tls.Certificate{certificate(t, "docs.example", &authority)}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				c.(*tls.Conn).Handshake()
				c.(*tls.Conn).NetConn().Close()
			}
		}()
		c := &client{T: t, Conn: DialStreamable(Options{URL: "https://" + l.Addr().String(),
			TLS: ClientTLS{CA: ca, ServerName: "docs.example"}}), next: 100}
		defer c.Close()
		m, _ := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
		if err = c.Write(m, ""); err == nil {
			_, _, err = c.Read()
		}
		if err == nil || strings.Contains(err.Error(), "set tls.cert and tls.key") != hint {
			t.Errorf("certificate requested: %v: the error is %v", hint, err)
		}
	}
}

// A server that has responded to a request without a client certificate requires none, so no later
// error has the hint.
func TestClientTLS_NoHintAfterAResponse(t *testing.T) {
	authority := certificate(t, "authority", nil)
	ca, _ := writeCertificate(t, authority)
	var requests atomic.Int32
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			m, _ := wire.Parse(body)
			if requests.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Connection", "close")
			writeResult(w, m, `{}`)
		}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert,
		Certificates: []tls.Certificate{certificate(t, "docs.example", &authority)}}
	server.StartTLS()
	defer server.Close()
	c := &client{T: t, Conn: DialStreamable(Options{URL: server.URL,
		TLS: ClientTLS{CA: ca, ServerName: "docs.example"}}), next: 100}
	defer c.Close()
	c.call("tools/call")
	c.read()
	c.call("tools/call")
	if _, _, err := c.Read(); err == nil || strings.Contains(err.Error(), "tls.cert") {
		t.Errorf("the error is %v", err)
	}
}

// A server may have a certificate of a private authority or for another name, and request a client
// certificate.
func TestClientTLS_F_HTTP_7(t *testing.T) {
	authority := certificate(t, "authority", nil)
	us := certificate(t, "us", &authority)
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			m, _ := wire.Parse(body)
			writeResult(w, m, `{"of":"`+r.TLS.PeerCertificates[0].Subject.CommonName+`"}`)
		}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{certificate(t, "docs.example", &authority)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}
	server.StartTLS()
	defer server.Close()
	ca, _ := writeCertificate(t, authority)
	cert, key := writeCertificate(t, us)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		tls  ClientTLS
		want string // in the error
	}{
		"all": {ClientTLS{CA: ca, Cert: cert, Key: key, ServerName: "docs.example"},
			""},
		"unknown authority": {ClientTLS{Cert: cert, Key: key, ServerName: "docs.example"},
			"set tls.ca of the backend, or SSL_CERT_FILE"},
		"nothing": {ClientTLS{}, "x509: "},
		"another name": {ClientTLS{CA: ca, Cert: cert, Key: key},
			"set tls.server_name of the backend"},
		"no certificate": {ClientTLS{CA: ca, ServerName: "docs.example"},
			"set tls.cert and tls.key of the backend"},
		"no such file": {ClientTLS{CA: "none.pem"},
			"tls.ca: " + filepath.Join(here, "none.pem") + ": "},
		"nothing in the file": {ClientTLS{CA: empty}, "has no certificate in PEM"},
		"no such key":         {ClientTLS{Cert: cert, Key: key + "x"}, "tls.key: " + key + "x: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := &client{T: t, Conn: DialStreamable(Options{URL: server.URL, TLS: tt.tls}),
				next: 100}
			defer c.Close()
			m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
			if err != nil {
				t.Fatal(err)
			}
			if err = c.Write(m, ""); err == nil {
				m, _, err = c.Read()
			}
			switch {
			case tt.want != "":
				wantErrorText(t, err, tt.want)
			case err != nil || string(m.Part(wire.PartResult)) != `{"of":"us"}`:
				t.Errorf("got %s, %v", m.Raw(), err)
			}
			if lost, is := errors.AsType[*transport.CallLostError](err); is && lost.MayHaveRun &&
				name != "no certificate" {
				t.Errorf("the call may have run: %v", err)
			}
		})
	}
}
