package wire

// methods contains the most frequent methods, so that [Message.Method] does not allocate for them.
var methods = func() map[string]string {
	known := make(map[string]string)
	for _, method := range []string{
		"ping", "tools/call", "tools/list", "resources/read", "prompts/get", "completion/complete",
		"notifications/progress", "notifications/cancelled", "notifications/message",
		"notifications/initialized",
	} {
		known[`"`+method+`"`] = method
	}
	return known
}()

// Method returns the message's method, "" if it has none.
func (m Message) Method() string {
	text := m.Part(PartMethod)
	if known, ok := methods[string(text)]; ok {
		return known
	}
	return Unquote(text)
}
