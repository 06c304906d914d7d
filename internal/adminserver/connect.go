package adminserver

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/adminapi"
)

// A ClientServer serves clients of MCP.
type ClientServer interface {
	// Connect serves a client over conn, as over stdin and stdout, until the client disconnects or
	// ctx is done. It closes conn.
	Connect(ctx context.Context, conn *os.File)
}

const connectPath = "/api/v1/connect"

// A connectHandler turns connections of the admin socket into sessions of MCP.
type connectHandler struct {
	ClientServer
	sessions sync.WaitGroup // connections that were taken from the HTTP server
}

// serve serves GET /api/v1/connect with Upgrade: mcp-stdio. After the response with status 101,
// each side sends JSON-RPC messages, one on each line.
func (h *connectHandler) serve(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), adminapi.StdioProtocol) {
		writeError(w, http.StatusUpgradeRequired, &adminapi.APIError{
			Text: "send Connection: Upgrade and Upgrade: " + adminapi.StdioProtocol})
		return
	}
	h.sessions.Add(1) // before the HTTP server forgets the connection
	defer h.sessions.Done()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, http.StatusNotImplemented, &adminapi.APIError{Text: err.Error()})
		return
	}
	file, err := fileOf(conn)
	if err != nil || buffered.Reader.Buffered() > 0 { // the client has not waited for the response
		conn.Close()
		return
	}
	_, err = file.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
		"Upgrade: " + adminapi.StdioProtocol + "\r\n\r\n")
	conn.Close() // file is a duplicate
	if err != nil {
		file.Close()
		return
	}
	h.Connect(r.Context(), file)
}

// fileOf returns a duplicate of a connection.
func fileOf(conn net.Conn) (*os.File, error) {
	if limited, is := conn.(*limitedConn); is {
		conn = limited.Conn
	}
	socket, is := conn.(*net.UnixConn)
	if !is {
		return nil, http.ErrNotSupported
	}
	_ = socket.SetDeadline(time.Time{})
	return socket.File()
}
