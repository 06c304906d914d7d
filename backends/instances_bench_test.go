package backends

import (
	"fmt"
	"testing"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/principal"
)

// newInstanceBench returns the Set of newProfileBench with another backend with oauth.per:
// principal, whose instances of this many principals have 10 tools each, and the instance of the
// first principal.
func newInstanceBench(b *testing.B, principals int) (*Set, []*principal.Principal, *Backend) {
	s, _ := newProfileBench(b, 0)
	t := *s.current()
	own := newBackend(s, config.Backend{Name: "own", Command: "x", Enabled: true,
		OAuth: config.OAuth{Per: config.PerPrincipal}})
	t.all = append(t.all, own)
	t.byName["own"] = own
	s.publisher.replaceTable(&t)
	var all []*principal.Principal
	for i := range principals {
		p := principal.FromToken(principal.TokenIdentity{Name: fmt.Sprint("p", i)})
		one, err := s.backend("own", p)
		if err != nil {
			b.Fatal(err)
		}
		one.lists.setItemsLocked(catalog.Tools, benchTools(b, 1000+i, 10))
		one.lists.everSettled = true
		s.OpenSession(fmt.Sprint("s", i), p, nil, false)
		all = append(all, p)
	}
	s.publisher.publish()
	for _, p := range all {
		s.ViewFor(p)
	}
	return s, all, own.instances.get(all[0].Key())
}

// BenchmarkViewOfPrincipal measures the lookup of a view, which each request makes: without a
// backend with oauth.per: principal (no principals), and with one.
func BenchmarkViewOfPrincipal(b *testing.B) {
	for _, n := range []int{0, 1, maxInstances} {
		b.Run(fmt.Sprintf("%d principals", n), func(b *testing.B) {
			var s *Set
			var who *principal.Principal
			if n == 0 {
				s, _ = newProfileBench(b, 0)
			} else {
				var all []*principal.Principal
				s, all, _ = newInstanceBench(b, n)
				who = all[n-1]
			}
			b.ReportAllocs()
			for b.Loop() {
				s.ViewFor(who)
			}
		})
	}
}

// BenchmarkPublishInstance measures a publish after the instance of one principal has listed
// another tool, and then the lookups of the views of all principals. Only the view of this
// principal is made again; the metric merged/op proves it.
func BenchmarkPublishInstance(b *testing.B) {
	for _, n := range []int{1, 16, maxInstances} {
		b.Run(fmt.Sprintf("%d principals", n), func(b *testing.B) {
			s, all, one := newInstanceBench(b, n)
			lists := [][]catalog.Item{benchTools(b, 1000, 10), benchTools(b, 1000, 9)}
			snapshots, merged := make([]*catalog.Snapshot, n), -n
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				one.lists.setItemsLocked(catalog.Tools, lists[i%2])
				s.publisher.publishInstance(one)
				for k, p := range all {
					if v := s.ViewFor(p); v.Snapshot != snapshots[k] {
						snapshots[k] = v.Snapshot
						merged++
					}
				}
			}
			b.ReportMetric(float64(max(merged, 0))/float64(b.N), "merged/op")
		})
	}
}
