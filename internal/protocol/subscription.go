package protocol

import "mcpgateway/internal/wire"

// SetResultSubscriptionID adds the id of the subscription to the response to subscriptions/listen.
// It is the id of that request.
func SetResultSubscriptionID(m wire.Message, id wire.ID) wire.Message {
	result := m.Part(wire.PartResult)
	meta, _ := wire.Lookup(result, "_meta")
	put := wire.Member{Key: MetaSubscriptionID, Text: []byte(id)}
	return setResult(m, wire.EditObject(result, nil,
		wire.Member{Key: "_meta", Text: wire.EditObject(meta, nil, put)}))
}

// SetSubscriptionID adds the id of the subscription to a notification: the JSON text of the id of
// its subscriptions/listen request.
func SetSubscriptionID(m wire.Message, id wire.ID) wire.Message {
	put := wire.Member{Key: MetaSubscriptionID, Text: []byte(id)}
	return setMeta(m, wire.EditObject(m.Part(wire.PartMeta), nil, put))
}

// SubscriptionID returns the subscription id in a notification, "" if there is none.
func SubscriptionID(m wire.Message) wire.ID {
	value, _ := wire.Lookup(m.Part(wire.PartMeta), MetaSubscriptionID)
	return wire.ID(value)
}
