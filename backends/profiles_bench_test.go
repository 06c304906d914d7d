package backends

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/wire"
)

// newProfileBench returns a Set with 200 backends of 10 tools, of which a fifth have the same name
// at all backends, and with the views of this many audiences. Each audience hides a third of the
// backends and some tools.
func newProfileBench(b *testing.B, audiences int) (*Set, []*principal.Principal) {
	o := Options{Log: slog.New(slog.DiscardHandler), Profiles: make(map[string]config.Profile)}
	for i := range 200 {
		o.Backends = append(o.Backends, config.Backend{Name: fmt.Sprintf("b%d", i), Command: "x",
			Enabled: true})
	}
	var clients []*principal.Principal
	for i := range audiences {
		p := config.Profile{Tools: config.ProfileTools{Deny: []string{"*_of_9", "common_x*"},
			ReadOnly: i%2 == 1}}
		for n := range o.Backends {
			if n%3 != i%3 {
				p.Backends = append(p.Backends, o.Backends[n].Name)
			}
		}
		name := fmt.Sprintf("p%d", i)
		o.Profiles[name] = p
		clients = append(clients, (*principal.Principal)(nil).WithProfile(name))
	}
	s := New(o)
	for i, one := range s.current().all {
		one.lists.setItemsLocked(catalog.Tools, benchTools(b, i, 10))
		one.lists.everSettled = true
	}
	s.publisher.publish()
	for i, who := range clients {
		s.ViewFor(who)
		s.OpenSession(fmt.Sprint("s", i), who, nil, false)
	}
	return s, clients
}

func benchTools(b *testing.B, backend, number int) []catalog.Item {
	var list strings.Builder
	for tool := range number {
		name := fmt.Sprintf("tool_%d_of_%d", tool, backend)
		if tool%5 == 0 {
			name = fmt.Sprintf("common_%d", tool)
		}
		fmt.Fprintf(&list, `,{"name":%q,"description":%q,"inputSchema":{"type":"object"},`+
			`"annotations":{"readOnlyHint":true}}`, name, strings.Repeat("what it does ", 30))
	}
	page, err := catalog.ParsePage(catalog.Tools, []byte(`{"tools":[`+list.String()[1:]+`]}`))
	if err != nil {
		b.Fatal(err)
	}
	return page.Items
}

// BenchmarkPublishForAudiences measures a publish after one backend has listed another tool, with
// the views of no, one, two and 64 audiences.
func BenchmarkPublishForAudiences(b *testing.B) {
	for _, n := range []int{0, 1, 2, maxAudiences} {
		b.Run(fmt.Sprintf("%d audiences", n), func(b *testing.B) {
			s, _ := newProfileBench(b, n)
			last := s.current().all[199]
			lists := [][]catalog.Item{benchTools(b, 199, 10), benchTools(b, 199, 9)}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				last.lists.setItemsLocked(catalog.Tools, lists[i%2])
				s.publisher.publish()
			}
		})
	}
}

// BenchmarkProfileCheck measures what profiles add to each call: the lookup of the view, and the
// checks by package gateway, before the call is queued, and when it is sent.
func BenchmarkProfileCheck(b *testing.B) {
	for _, n := range []int{0, 1, 2, maxAudiences} {
		b.Run(fmt.Sprintf("%d audiences", n), func(b *testing.B) {
			s, clients := newProfileBench(b, n)
			var who *principal.Principal
			r := contract.BackendRequest{Message: wire.NewRequest("0", "tools/call",
				[]byte(`{"name":"tool_1_of_1"}`)), Entry: "tool_1_of_1"}
			if n > 0 {
				who, r.Session = clients[0], "s0"
			}
			one := s.current().byName["b1"]
			b.ReportAllocs()
			for b.Loop() {
				if s.ViewFor(who) == nil || n > 0 && s.Permits("b1", r) != nil ||
					one.check(&r) != nil || one.check(&r) != nil {
					b.Fatal("the call is not permitted")
				}
			}
		})
	}
}

// BenchmarkFirstViewOfAudience measures the first lookup of an audience's view after a publish.
func BenchmarkFirstViewOfAudience(b *testing.B) {
	s, clients := newProfileBench(b, 1)
	for b.Loop() {
		b.StopTimer()
		s.publisher.publish()
		b.StartTimer()
		s.ViewFor(clients[0])
	}
}
