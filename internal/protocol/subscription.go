package protocol

import "mcpgateway/internal/wire"

// SetResultSubscriptionID adds the id of the subscription to the response to subscriptions/listen.
// It is the id of that request.
func SetResultSubscriptionID(m wire.Message, id wire.ID) wire.Message {
	result := m.Part(wire.PartResult)
	meta, _ := wire.Lookup(result, "_meta")
	put := wire.Member{Key: MetaSubscriptionID, Text: []byte(id)}
	return setResult(m, wire.EditObject(result, nil, wire.Member{Key: "_meta", Text: wire.EditObject(meta, nil, put)}))
}
