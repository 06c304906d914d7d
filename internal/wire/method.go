package wire

// methods are those that nearly all messages have, so that naming one takes no memory.
var methods = func() map[string]string {
	known := make(map[string]string)
	for _, method := range []string{
		"ping", "tools/call", "tools/list", "resources/read", "prompts/get", "completion/complete",
		"notifications/progress", "notifications/cancelled", "notifications/message", "notifications/initialized",
	} {
		known[`"`+method+`"`] = method
	}
	return known
}()

// Method returns the method's name, "" for a response.
func (m Message) Method() string {
	text := m.Part(PartMethod)
	if known, ok := methods[string(text)]; ok {
		return known
	}
	return Unquote(text)
}
