package protocol

import (
	"bytes"
	"strconv"

	"mcpgateway/internal/wire"
)

// AdaptResponse converts the response to a request of this method to a form that a client of the
// target revision can read. Values of a type that the target revision does not have are converted:
//
//	audio               to an embedded resource
//	resource_link       to text: its name, URI and description
//	structuredContent   if not an object, to {"result": value}. A value that the target revision
//	                    does not have is also added as text, if there is no text
//	outputSchema        if not of an object, to the schema of {"result": value}
//
// Members that the target revision does not have are harmless and stay. All other members keep
// their bytes, and m itself is returned if nothing changes. The response to tasks/result is treated
// like a response to tools/call.
func AdaptResponse(m wire.Message, method string, to Features) wire.Message {
	result := m.Part(wire.PartResult)
	adapted := result
	switch method {
	case MethodToolsCall, MethodTasksResult:
		if !to.NonObjectStructured && m.HasStructuredContent() {
			adapted = adaptStructured(adapted, to)
		}
		if hasUnknownContent(result, to) {
			adapted = mapMember(adapted, "content", func(content []byte) []byte {
				return adaptContent(content, to)
			})
		}
	case MethodPromptsGet:
		if hasUnknownContent(result, to) {
			adapted = mapMember(adapted, "messages", func(messages []byte) []byte {
				return adaptPromptMessages(messages, to)
			})
		}
	case MethodToolsList:
		if !to.NonObjectStructured && containsQuoted(result, `"outputSchema"`) {
			adapted = mapMember(adapted, "tools", adaptOutputSchemas)
		}
	}
	if wire.SameSlice(adapted, result) {
		return m
	}
	return setResult(m, adapted)
}

// hasUnknownContent is a quick check. It returns false if a result cannot have content of a type
// that the target revision lacks.
func hasUnknownContent(result []byte, to Features) bool {
	return !to.Audio && containsQuoted(result, `"audio"`) ||
		!to.ResourceLinks && containsQuoted(result, `"resource_link"`)
}

// containsQuoted reports whether text contains quoted, which begins with a quotation mark. It
// searches for quotation marks and compares the text after each. bytes.Contains would switch to a
// slower search after some false matches, and would then take ten times as long on one long string.
func containsQuoted(text []byte, quoted string) bool {
	for {
		i := bytes.IndexByte(text, '"')
		if i < 0 {
			return false
		}
		if text = text[i:]; len(text) >= len(quoted) && string(text[:len(quoted)]) == quoted {
			return true
		}
		text = text[1:]
	}
}

// adaptContent converts content blocks to types that the target revision has.
func adaptContent(content []byte, to Features) []byte {
	return mapElements(content, func(i int, block []byte) [][]byte {
		return [][]byte{adaptBlock(i, block, to)}
	})
}

// adaptPromptMessages converts the content of the messages of a prompt, which have one content
// block each.
func adaptPromptMessages(messages []byte, to Features) []byte {
	return mapElements(messages, func(i int, message []byte) [][]byte {
		return [][]byte{mapMember(message, "content", func(block []byte) []byte {
			return adaptBlock(i, block, to)
		})}
	})
}

// adaptBlock converts the content block with index i to a type that the target revision has.
func adaptBlock(i int, block []byte, to Features) []byte {
	switch kind := stringMember(block, "type"); {
	case kind == "audio" && !to.Audio:
		return audioAsResource(i, block)
	case kind == "resource_link" && !to.ResourceLinks:
		return linkAsText(block)
	}
	return block
}

// audioAsResource converts audio to an embedded resource. A resource must have a URI. This URI is
// unique within a result, but clients cannot read it.
func audioAsResource(i int, audio []byte) []byte {
	put := []wire.Member{{Key: "uri", Text: wire.Quote("audio://content/" + strconv.Itoa(i))}}
	if mime, _ := wire.Lookup(audio, "mimeType"); mime != nil {
		put = append(put, wire.Member{Key: "mimeType", Text: mime})
	}
	data, _ := wire.Lookup(audio, "data")
	if data == nil {
		data = []byte(`""`)
	}
	resource := wire.EditObject(nil, nil, append(put, wire.Member{Key: "blob", Text: data})...)
	drop := func(key string) bool { return key == "data" || key == "mimeType" }
	return wire.EditObject(audio, drop, wire.Member{Key: "type", Text: []byte(`"resource"`)},
		wire.Member{Key: "resource", Text: resource})
}

// linkAsText converts a resource link to text.
func linkAsText(link []byte) []byte {
	text := stringMember(link, "uri")
	if name := stringMember(link, "name"); name != "" {
		text = name + ": " + text
	}
	if description := stringMember(link, "description"); description != "" {
		text += "\n" + description
	}
	drop := func(key string) bool { return key != "annotations" && key != "_meta" }
	return wire.EditObject(link, drop, wire.Member{Key: "type", Text: []byte(`"text"`)},
		wire.Member{Key: "text", Text: wire.Quote(text)})
}

// adaptStructured converts the structuredContent of a tool's result, if there is any, to an object.
// If the value was not an object, or if the target revision does not have structuredContent, a text
// block with the value is added, unless the result has a text block or its content is not an array.
func adaptStructured(result []byte, to Features) []byte {
	value, _ := wire.Lookup(result, "structuredContent")
	if value == nil || wire.IsObject(value) && to.StructuredContent {
		return result
	}
	if !wire.IsObject(value) {
		wrapped := wire.EditObject(nil, nil, wire.Member{Key: "result", Text: value})
		result = mapMember(result, "structuredContent", func([]byte) []byte { return wrapped })
	}
	content, _ := wire.Lookup(result, "content")
	blocks, hasText := wire.Elements(content), false
	for _, block := range blocks {
		hasText = hasText || stringMember(block, "type") == "text"
	}
	if hasText || content != nil && content[0] != '[' {
		return result
	}
	text := wire.EditObject(nil, nil, wire.Member{Key: "type", Text: []byte(`"text"`)},
		wire.Member{Key: "text", Text: wire.Quote(string(value))})
	return wire.EditObject(result, nil, wire.Member{Key: "content",
		Text: joinArray(append(blocks, text))})
}

// stringMember returns the string value of a member of an object, "" if the member is not a
// string.
func stringMember(object []byte, name string) string {
	value, _ := wire.Lookup(object, name)
	return wire.Unquote(value)
}
