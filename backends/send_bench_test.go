package backends_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// BenchmarkSend measures two concurrent calls of the embedded backend and their responses, with
// free slots for both, and with one slot.
func BenchmarkSend(b *testing.B) {
	for name, places := range map[string]int{"free": 20_000, "queued": 1} {
		b.Run(name, func(b *testing.B) {
			set := backends.New(backends.Options{
				Backends: []config.Backend{{Name: "demo", Embedded: "demo", Enabled: true,
					MaxInFlight: places, QueueWait: time.Minute}},
				Log: slog.New(slog.DiscardHandler),
			})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = set.Run(ctx, nil)
			}()
			set.Start()
			ask := wire.NewRequest("0", "tools/call", []byte(`{"name":"now"}`))
			call := func(to backends.ResponseChan) { set.SendCall("demo", "o", ask, to) }
			two := [2]backends.ResponseChan{make(backends.ResponseChan, 1),
				make(backends.ResponseChan, 1)}
			call(two[0])
			<-two[0]
			b.ReportAllocs()
			for b.Loop() {
				call(two[0])
				call(two[1])
				for _, to := range two {
					if a := <-to; a.Err != nil {
						b.Fatal(a.Err)
					}
				}
			}
			cancel()
			<-done
		})
	}
}
