package protocol

import "mcpgateway/internal/wire"

// SubscribedResult returns the answer to a request subscriptions/listen with the id of
// the subscription on it, which is that request's.
func SubscribedResult(m wire.Message, id wire.ID) wire.Message {
	result := m.Part(wire.PartResult)
	meta, _ := wire.Lookup(result, "_meta")
	put := wire.Member{Key: metaSubscription, Text: []byte(id)}
	return setResult(m, wire.Revise(result, nil, wire.Member{Key: "_meta", Text: wire.Revise(meta, nil, put)}))
}
