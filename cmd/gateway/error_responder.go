package main

import (
	"context"
	"os"
	"strings"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/text"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// An errorResponder responds to each request of a client with an error. It is used for a client
// that has started the gateway with pipes and cannot be served. An error on stderr would not
// suffice, because few clients show stderr.
type errorResponder struct {
	message   string
	onRequest func(method string) // called after the error was sent
}

// HandleRequest implements peer.Handler.
func (s errorResponder) HandleRequest(r *peer.Request) {
	r.Fail(wire.Errorf(wire.CodeInvalidRequest, "%s", s.message))
	s.onRequest(r.Method())
}

// HandleNotification implements peer.Handler.
func (errorResponder) HandleNotification(wire.Message, peer.Origin) {}

// serveErrors responds with r to the client on stdin until end is called or the client disconnects.
// Either event closes done. If stdin is not a pipe or socket, serveErrors does not read it, and
// done is closed at once.
func serveErrors(io stdio, r errorResponder, limit int) (done <-chan struct{}, end func()) {
	closed := make(chan struct{})
	if info, err := io.in.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		close(closed)
		return closed, func() {}
	}
	ignore := func(*transport.MalformedError) {} // the process at stdin may not be an MCP client
	p := peer.New(transport.Stdio(io.in, io.out, limit), r, peer.Options{OnMalformed: ignore})
	go func() {
		defer close(closed)
		_ = p.Run(context.Background())
	}()
	return closed, func() {
		p.Close()
		<-closed
	}
}

// startupErrorTimeout limits the wait for requests of a client that cannot be served.
const startupErrorTimeout = 2 * time.Second

// maxStartupError bounds the error text for such a client, in bytes.
const maxStartupError = 4 << 10

// reportStartupError sends the error, which is also on stderr, to a client on stdin. It returns
// when it has responded to a request other than server/discover, when the client has disconnected,
// after startupErrorTimeout, or when ctx is done. After server/discover it waits for another
// request, because a client may fall back to initialize. It does nothing if stdin is not a pipe or
// socket.
func reportStartupError(ctx context.Context, io stdio, problem string) {
	problem = text.Truncate(logging.NewMask().String(strings.TrimSpace(problem)), maxStartupError)
	reported := make(chan struct{}, 1)
	r := errorResponder{problem, func(method string) {
		if method == protocol.MethodServerDiscover {
			return
		}
		select {
		case reported <- struct{}{}:
		default:
		}
	}}
	done, end := serveErrors(io, r, int(config.Default().Limits.Message))
	defer end()
	select {
	case <-reported:
	case <-done:
	case <-time.After(startupErrorTimeout):
	case <-ctx.Done():
	}
}
