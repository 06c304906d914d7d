package backends

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// A lockedBuffer may be read while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// sendSized sends a call with arguments of size bytes.
func sendSized(s *Set, backend string, size int) ResponseChan {
	w := make(ResponseChan, 1)
	params := `{"name":"now","arguments":{"x":"` + strings.Repeat("x", size) + `"}}`
	s.SendCall(backend, "one", wire.NewRequest("0", "tools/call", []byte(params)),
		w)
	return w
}

// runAll starts backends, waits until each is settled, and returns a function that ends them.
func runAll(t *testing.T, log io.Writer, all ...config.Backend) (s *Set, end func()) {
	t.Helper()
	s = New(Options{Backends: all, MaxMessage: 8 << 20,
		Log: slog.New(slog.NewTextHandler(log, nil))})
	return s, runUntilSettled(s)
}

// runUntilSettled starts a Set, waits until every backend is settled, and returns a function that
// ends the Set.
func runUntilSettled(s *Set) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, nil) }()
	s.Start()
	for v := s.View(); !v.Complete; v = s.View() {
		<-v.Changed
	}
	return func() {
		cancel()
		<-done
	}
}
