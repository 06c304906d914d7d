package backends

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/config"
)

// Nothing is kept of a drained backend, and the number of remembered names of removed backends is
// limited.
func TestApply_NothingIsLeftOfDrainedBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := config.Backend{Name: "a", Embedded: "demo", Enabled: true}
		s := New(Options{Backends: []config.Backend{one}, MaxMessage: 1 << 20,
			Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		apply := func(all ...config.Backend) {
			t.Helper()
			if err := s.Apply(ctx, Change{Backends: all}); err != nil {
				t.Error(err)
			}
		}
		var many []config.Backend
		for i := range maxRemovedNames + 10 {
			many = append(many, config.Backend{Name: fmt.Sprint("b", i), Embedded: "demo",
				Enabled: true})
		}
		apply(many...) // these backends are not started
		apply(one)
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, nil) }()
		s.Start()
		for i := range 20 {
			synctest.Wait()
			one.Args = []string{fmt.Sprint(i)}
			apply(one)
		}
		synctest.Wait()
		if m := s.current(); len(m.draining) > 0 || len(m.removedNames) != maxRemovedNames {
			t.Errorf("kept: %d draining, %d names", len(m.draining), len(m.removedNames))
		}
		cancel()
		<-done
	})
}
