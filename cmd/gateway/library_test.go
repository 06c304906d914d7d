package main

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

// If a server sends more bytes than its response over TLS, net/http writes a message. The message
// is logged at level debug, without the secret. (Package log has one logger for the process: this
// test must not run in parallel.)
func TestLibraryMessagesAreLogged(t *testing.T) {
	const secret = "tok-q9ZkTm4vXr7Lw2Pb8N"
	other := httptest.NewTLSServer(nil) // for its certificate
	other.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: other.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ca := file(t, "ca.pem", string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw})))
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serveUnsolicited(c, secret)
		}
	}()
	path := file(t, "gateway.yaml", "state: none\nlog: {format: json}\nbackends:\n- {name: a, url: 'https://"+ln.Addr().String()+
		"/mcp', tls: {ca: '"+ca+"'}, era: legacy, headers: {Authorization: Bearer "+secret+"}}\n")
	for _, verb := range []string{"tools", "check", "call works", "serve"} {
		for _, level := range []string{"debug", "error"} {
			c := runPiped(t, nil, append(strings.Fields(verb), "-c", path, "--log-level", level)...)
			if verb == "serve" {
				_, _ = io.WriteString(c.in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
					`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+
					"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
				out := bufio.NewScanner(c.out)
				for out.Scan() && !strings.Contains(out.Text(), `"works"`) {
				}
				c.in.Close()
			}
			_, _, stderr := c.output()
			if strings.Contains(stderr, secret) {
				t.Errorf("%s at %s shows the secret:\n%s", verb, level, stderr)
			}
			reported := 0
			for line := range strings.Lines(stderr) {
				if strings.Contains(line, "Unsolicited response") {
					reported++
					if !strings.HasPrefix(line, "{") || !strings.Contains(line, "Bearer ***") {
						t.Errorf("%s at %s: %s", verb, level, line)
					}
				}
			}
			if (reported > 0) != (level == "debug") {
				t.Errorf("%s at %s: reported %d times\n%s", verb, level, reported, stderr)
			}
		}
	}
}

// serveUnsolicited serves MCP over one HTTP connection, and sends the secret after each response.
func serveUnsolicited(c net.Conn, secret string) {
	defer c.Close()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	body, _ := io.ReadAll(r.Body)
	m, _ := wire.Parse(body)
	result := ""
	switch m.Method() {
	case "initialize":
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"works","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		result = `{"content":[]}`
	default:
		_, _ = io.WriteString(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\nBearer "+secret)
		return
	}
	result = `{"jsonrpc":"2.0","id":` + string(m.ID()) + `,"result":` + result + `}`
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%sBearer %s", len(result), result, secret)
	_, _ = c.Read(make([]byte, 1)) // until the gateway closes the connection
}
