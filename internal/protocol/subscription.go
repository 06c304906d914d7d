package protocol

import "mcpgateway/internal/wire"

// SetResultSubscriptionID adds the id of the subscription to the response to subscriptions/listen.
// The id of a subscription is the id of this request.
func SetResultSubscriptionID(m wire.Message, id wire.ID) wire.Message {
	result := m.Part(wire.PartResult)
	meta, _ := wire.Lookup(result, "_meta")
	put := wire.Member{Key: MetaSubscriptionID, Text: []byte(id)}
	return setResult(m, wire.EditObject(result, nil,
		wire.Member{Key: "_meta", Text: wire.EditObject(meta, nil, put)}))
}

// SetSubscriptionID adds the id of the subscription, which is the id of the subscriptions/listen
// request, to a notification.
func SetSubscriptionID(m wire.Message, id wire.ID) wire.Message {
	put := wire.Member{Key: MetaSubscriptionID, Text: []byte(id)}
	return setMeta(m, wire.EditObject(m.Part(wire.PartMeta), nil, put))
}

// SubscriptionID returns the subscription id in a notification, "" if there is none.
func SubscriptionID(m wire.Message) wire.ID {
	value, _ := wire.Lookup(m.Part(wire.PartMeta), MetaSubscriptionID)
	return wire.ID(value)
}
