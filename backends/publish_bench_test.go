package backends

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
)

// BenchmarkPublish measures a merge after one backend has listed another tool. Each backend has 25
// tools, a fifth of which another backend also has.
func BenchmarkPublish(b *testing.B) {
	for _, n := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("%d backends", n), func(b *testing.B) {
			o := Options{Log: slog.New(slog.DiscardHandler)}
			for i := range n {
				o.Backends = append(o.Backends, config.Backend{Name: fmt.Sprintf("b%d", i),
					Command: "x", Enabled: true})
			}
			s := New(o)
			items := func(backend, from int) []catalog.Item {
				var list strings.Builder
				for tool := from; tool < 25; tool++ {
					name := fmt.Sprintf("tool_%d_of_%d", tool, backend)
					if tool%5 == 0 {
						name = fmt.Sprintf("common_%d", tool)
					}
					fmt.Fprintf(&list,
						`,{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name,
						strings.Repeat("what it does ", 30))
				}
				page, err := catalog.ParsePage(catalog.Tools,
					[]byte(`{"tools":[`+list.String()[1:]+`]}`))
				if err != nil {
					b.Fatal(err)
				}
				return page.Items
			}
			for i, one := range s.current().all {
				one.lists.setItemsLocked(catalog.Tools, items(i, 0))
				one.lists.everSettled = true
			}
			last := s.current().all[n-1]
			lists := [][]catalog.Item{items(n-1, 0), items(n-1, 1)}
			s.publisher.publish()
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				last.lists.setItemsLocked(catalog.Tools, lists[i%2])
				s.publisher.publish()
			}
		})
	}
}
