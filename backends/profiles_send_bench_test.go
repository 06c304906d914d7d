package backends_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/wire"
)

// BenchmarkCallWithProfile measures a call of the embedded backend by a client with a profile, and
// reports its median, with no, one, two and 64 profiles in use.
func BenchmarkCallWithProfile(b *testing.B) {
	for _, n := range []int{0, 1, 2, backends.MaxAudiences} {
		b.Run(fmt.Sprintf("%d profiles", n), func(b *testing.B) {
			o := backends.Options{Log: slog.New(slog.DiscardHandler),
				Backends: []config.Backend{{Name: "demo", Embedded: "demo", Enabled: true,
					MaxInFlight: 20_000, QueueWait: time.Minute}},
				Profiles: make(map[string]config.Profile)}
			for i := range n {
				o.Profiles[fmt.Sprint("p", i)] = config.Profile{Backends: []string{"demo"},
					Tools: config.ProfileTools{Allow: []string{"no*", "echo"},
						Deny: []string{"x*"}}}
			}
			set := backends.New(o)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = set.Run(ctx, nil)
			}()
			set.Start()
			var who *principal.Principal
			for i := range n {
				who = (*principal.Principal)(nil).WithProfile(fmt.Sprint("p", i))
				set.ViewFor(who)
				set.OpenSession(fmt.Sprint("s", i), who, nil, false)
			}
			session := fmt.Sprint("s", n-1)
			ask := wire.NewRequest("0", "tools/call", []byte(`{"name":"now"}`))
			to := make(backends.ResponseChan, 1)
			set.SendCall("demo", session, ask, to)
			<-to
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				set.ViewFor(who)
				if n > 0 {
					_ = set.Permits("demo", contract.BackendRequest{Message: ask, Session: session})
				}
				set.SendCall("demo", session, ask, to)
				if a := <-to; a.Err != nil {
					b.Fatal(a.Err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
			cancel()
			<-done
		})
	}
}
