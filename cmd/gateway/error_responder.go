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
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// A errorResponder is a client that has started us on its pipes, where nobody serves it.
// Whatever it asks, it is told why: it would wait in vain, or see its pipes close, and
// few clients show what stands on stderr.
type errorResponder struct {
	message   string
	onRequest func(method string) // called when it has been told
}

// Asked implements peer.Handler.
func (s errorResponder) HandleRequest(r *peer.Request) {
	r.Fail(wire.Errorf(wire.CodeInvalidRequest, "%s", s.message))
	s.onRequest(r.Method())
}

// Told implements peer.Handler.
func (errorResponder) HandleNotification(wire.Message, peer.Origin) {}

// serveErrors has a stranger answered until end is called, or it hangs up, which closes gone.
// A terminal, or nothing, is not read.
func (c *cli) serveErrors(s errorResponder, limit int) (gone <-chan struct{}, end func()) {
	over := make(chan struct{})
	if info, err := c.in.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		close(over)
		return over, func() {}
	}
	ignore := func(*transport.MalformedError) {} // it may be no client at all
	p := peer.New(transport.Stdio(c.in, c.out, limit), s, peer.Options{OnMalformed: ignore})
	go func() {
		defer close(over)
		_ = p.Run(context.Background())
	}()
	return over, func() {
		p.Close()
		<-over
	}
}

// startupErrorTimeout is how long a gateway that cannot serve waits for a client to ask.
const startupErrorTimeout = 2 * time.Second

// maxStartupError bounds what a client is told, in bytes.
const maxStartupError = 4 << 10

// reportStartupError tells a client at our pipes why it will not be served: what the user reads on
// stderr. The client may first ask what we are, and greet us when that has failed.
func (c *cli) reportStartupError(ctx context.Context, problem string) {
	problem = logging.NewMask().String(strings.TrimSpace(problem))
	if len(problem) > maxStartupError {
		problem = strings.ToValidUTF8(problem[:maxStartupError], "") + "…"
	}
	told := make(chan struct{}, 1)
	s := errorResponder{problem, func(method string) {
		if method == protocol.MethodServerDiscover {
			return
		}
		select {
		case told <- struct{}{}:
		default:
		}
	}}
	gone, end := c.serveErrors(s, int(config.Default().Limits.Message))
	defer end()
	select {
	case <-told:
	case <-gone:
	case <-time.After(startupErrorTimeout):
	case <-ctx.Done():
	}
}
