package wire

// NewRequest returns a request; params may be nil.
func NewRequest(id ID, method string, params []byte) Message {
	return newCall(id, method, params)
}

// NewNotification returns a notification; params may be nil.
func NewNotification(method string, params []byte) Message {
	return newCall("", method, params)
}

func newCall(id ID, method string, params []byte) Message {
	b := append(make([]byte, 0, 64+len(method)+len(params)), `{"jsonrpc":"2.0"`...)
	if id != "" {
		b = append(append(b, `,"id":`...), id...)
	}
	b = append(append(b, `,"method":`...), Quote(method)...)
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	return mustParse(append(b, '}'))
}

// NewResult returns a response with this result, which must be JSON.
func NewResult(id ID, result []byte) Message {
	return mustParse(encodeResponse(id, "result", result))
}

// NewErrorResponse returns a response with this error. The id "" means that the id of the request
// could not be read, and becomes null (JSON-RPC 2.0 §5).
func NewErrorResponse(id ID, err *Error) Message {
	if id == "" {
		id = "null"
	}
	return mustParse(encodeResponse(id, "error", Encode(err)))
}

func encodeResponse(id ID, member string, value []byte) []byte {
	b := append(make([]byte, 0, 48+len(id)+len(value)), `{"jsonrpc":"2.0","id":`...)
	b = append(append(append(b, id...), `,"`...), member...)
	return append(append(append(b, `":`...), value...), '}')
}

// NewBatch returns the batch of these messages.
func NewBatch(all []Message) Message {
	size := 2
	for _, m := range all {
		size += m.Text().Len() + 1
	}
	// The batch is not parsed, because its messages are nested one level deeper, which may exceed
	// maxDepth.
	batch := Message{raw: append(make([]byte, 0, size), '['), kind: Batch}
	for i, m := range all {
		if i > 0 {
			batch.raw = append(batch.raw, ',')
		}
		text := m.Text()
		batch.raw = append(append(batch.raw, text[0]...), text[1]...)
		batch.multiline = batch.multiline || m.multiline
	}
	batch.raw = append(batch.raw, ']')
	return batch
}

// mustParse parses text that the gateway itself has written. It panics if the text is not a
// message.
func mustParse(text []byte) Message {
	m, err := Parse(text)
	if err != nil {
		panic("wire: the gateway wrote what it cannot read: " + err.Error())
	}
	return m
}
