package wire

// NewRequest returns a request; params may be nil. It panics if the params are ambiguous (see
// [ParseRequest]). Therefore they must be params of a received message, or be written by the
// gateway.
func NewRequest(id ID, method string, params []byte) Message {
	return mustParse(encodeCall(id, method, params))
}

// NewNotification is like NewRequest, but returns a notification.
func NewNotification(method string, params []byte) Message {
	return NewRequest("", method, params)
}

// ParseRequest returns a request whose params were not params of a received message, for example an
// entry of a received result; params may be nil. In results, [Parse] allows members that it does
// not allow in params. ParseRequest returns the error of Parse for such members.
func ParseRequest(id ID, method string, params []byte) (m Message, err error) {
	err = m.parse(encodeCall(id, method, params), composed)
	return m, err
}

// ParseNotification is like ParseRequest, but returns a notification.
func ParseNotification(method string, params []byte) (Message, error) {
	return ParseRequest("", method, params)
}

// encodeCall returns a request, or a notification if id is "".
func encodeCall(id ID, method string, params []byte) []byte {
	b := append(make([]byte, 0, 64+len(method)+len(params)), `{"jsonrpc":"2.0"`...)
	if id != "" {
		b = append(append(b, `,"id":`...), id...)
	}
	b = append(append(b, `,"method":`...), Quote(method)...)
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, '}')
}

// NewResult returns a response with this result, which must be JSON. If the response would be
// longer than maxComposedText, NewResult returns an internal error instead.
func NewResult(id ID, result []byte) Message {
	if len(result) > maxComposedText-envelopeLen {
		return NewErrorResponse(id, errTooLong)
	}
	return mustParse(encodeResponse(id, "result", result))
}

// envelopeLen is more than the length of a message that the gateway composes without its params or
// its result, in bytes.
const envelopeLen = 4 * maxID

var errTooLong = Errorf(CodeInternalError, "The response is too long to be forwarded")

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

// mustParse parses a text that the gateway has composed. It panics if the text is not a message.
// Parts of received messages in the text cannot cause a panic, because Parse has checked them, the
// bounds of composed texts are wider than those of Parse, and results may have any members. Only
// params must not come from elsewhere; see [ParseRequest].
func mustParse(text []byte) (m Message) {
	if err := m.parse(text, composed); err != nil {
		panic("wire: the gateway wrote what it cannot read: " + err.Error())
	}
	return m
}
