package backends

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"mcpgateway/config"
)

// Nothing is kept of a backend that was retired and has ended, however often that happens.
func TestApply_NothingIsLeftOfRetiredOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := config.Backend{Name: "a", Embedded: "demo", Enabled: true}
		s := New(Options{Backends: []config.Backend{one}, Limit: 1 << 20, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, nil) }()
		s.Start()
		synctest.Wait()
		for i := range maxFormer + 10 {
			one.Name = fmt.Sprint("a", i)
			if err := s.Apply(ctx, Change{Backends: []config.Backend{one}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if m := s.now(); len(m.retired) > 0 || len(m.former) != maxFormer {
			t.Errorf("kept: %d retired, %d names", len(m.retired), len(m.former))
		}
		cancel()
		<-done
	})
}
