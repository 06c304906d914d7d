package gateway

import (
	"fmt"
	"strings"
	"testing"

	"mcpgateway/catalog"
)

// BenchmarkListen_Changed measures a catalog change with a thousand subscriptions to a list of
// 2000 tools that turns out unchanged.
func BenchmarkListen_Changed(b *testing.B) {
	const listens, tools = 1000, 2000
	var page strings.Builder
	for i := range tools {
		fmt.Fprintf(&page,
			`,{"name":"tool_%d","description":%q,"inputSchema":{"type":"object","properties":{"q":{"type":"string","description":%q}},"required":["q"]}}`,
			i, strings.Repeat("what it does ", 20), strings.Repeat("what it is ", 5))
	}
	merged := func() *catalog.Snapshot {
		list, err := catalog.ParsePage(catalog.Tools, []byte(`{"tools":[`+page.String()[1:]+`]}`))
		if err != nil {
			b.Fatal(err)
		}
		return catalog.Merge(catalog.Options{},
			[]catalog.Listing{{Backend: "gh",
				Items: [catalog.NumKinds][]catalog.Item{catalog.Tools: list.Items}}})
	}
	snapshots := []*catalog.Snapshot{merged(), merged()}
	var all []*listenRequest
	for range listens {
		l := &listenRequest{acknowledged: true,
			lists: map[string]*catalog.Snapshot{catalog.Tools.ChangedNotification(): snapshots[0]}}
		all = append(all, l)
	}
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		now := snapshots[i%2]
		for _, l := range all {
			l.catalogChanged(&catalog.View{Snapshot: now, Settled: true})
		}
	}
}
