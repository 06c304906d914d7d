package backends

import (
	"sync"
	"time"

	"mcpgateway/backends/internal/lockrank"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

func setLevelRequest(level string) wire.Message {
	return wire.NewRequest("0", protocol.MethodSetLogLevel,
		wire.Encode(map[string]string{"level": level}))
}

// A responseGroup waits for several responses whose contents do not matter.
type responseGroup struct {
	timer      *time.Timer
	once       sync.Once
	onComplete func()

	mu      lockrank.Mutex[innermostRank]
	pending int
}

func (g *responseGroup) add() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending++
}

func (g *responseGroup) done() {
	g.mu.Lock()
	g.pending--
	last := g.pending == 0
	g.mu.Unlock()
	if last {
		g.timer.Stop()
		g.complete()
	}
}

func (g *responseGroup) complete() { g.once.Do(g.onComplete) }

// OnProgress implements peer.ResponseHandler.
func (g *responseGroup) OnProgress(wire.Message) {}

// OnResponse implements peer.ResponseHandler.
func (g *responseGroup) OnResponse(wire.Message, error) { g.done() }
