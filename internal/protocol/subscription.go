package protocol

import "mcpgateway/internal/wire"

// SetResultSubscriptionID returns the answer to a request subscriptions/listen with the id of
// the subscription on it, which is that request's.
func SetResultSubscriptionID(m wire.Message, id wire.ID) wire.Message {
	result := m.Part(wire.PartResult)
	meta, _ := wire.Lookup(result, "_meta")
	put := wire.Member{Key: metaSubscription, Text: []byte(id)}
	return setResult(m, wire.EditObject(result, nil, wire.Member{Key: "_meta", Text: wire.EditObject(meta, nil, put)}))
}
