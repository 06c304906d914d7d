package protocol

import (
	"bytes"
	"strconv"

	"mcpgateway/internal/wire"
)

// AdaptResponse returns the answer to a request of that method as a client of the revision to
// can read it: what a result has that would be of an unknown type there is said in
// another way. Members that are unknown there stay, for they do no harm, and so does
// every byte that need not change: if none need, it is m that is returned. An answer
// to tasks/result is one to tools/call.
//
//	audio               a resource that is embedded
//	resource_link       text: its name, its uri and its description
//	structuredContent   that is no object: {"result": it}, and what the text says if there is none
//	outputSchema        of no object: of {"result": it}
func AdaptResponse(m wire.Message, method string, to Features) wire.Message {
	result := m.Part(wire.PartResult)
	adapted := result
	switch method {
	case "tools/call", "tasks/result":
		if !to.NonObjectStructured && mentions(result, `"structuredContent"`) {
			adapted = structured(adapted, to)
		}
		if hasStrange(result, to) {
			adapted = mapMember(adapted, "content", func(content []byte) []byte { return oldContent(content, to) })
		}
	case "prompts/get":
		if hasStrange(result, to) {
			adapted = mapMember(adapted, "messages", func(messages []byte) []byte { return oldMessages(messages, to) })
		}
	case "tools/list":
		if !to.NonObjectStructured && mentions(result, `"outputSchema"`) {
			adapted = mapMember(adapted, "tools", objectOutputs)
		}
	}
	if same(adapted, result) {
		return m
	}
	return setResult(m, adapted)
}

// hasStrange is the glance that tells whether a result may have content of a type that a
// revision lacks.
func hasStrange(result []byte, to Features) bool {
	return !to.Audio && mentions(result, `"audio"`) ||
		!to.ResourceLinks && mentions(result, `"resource_link"`)
}

// mentions reports whether a name stands in a text, with a quote before it and behind. It looks from quote to quote:
// bytes.Contains gives that up once it has met some, and takes ten times as long where one long string follows.
func mentions(text []byte, quoted string) bool {
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

// oldContent returns blocks of content, each of a type that the revision has.
func oldContent(content []byte, to Features) []byte {
	return mapElements(content, func(i int, block []byte) [][]byte { return [][]byte{oldBlock(i, block, to)} })
}

// oldMessages does the same for the messages of a prompt, of which each has one block.
func oldMessages(messages []byte, to Features) []byte {
	return mapElements(messages, func(i int, message []byte) [][]byte {
		return [][]byte{mapMember(message, "content", func(block []byte) []byte { return oldBlock(i, block, to) })}
	})
}

// oldBlock returns a block of content, the one at place i, as one of a type that the
// revision has.
func oldBlock(i int, block []byte, to Features) []byte {
	switch kind := member(block, "type"); {
	case kind == "audio" && !to.Audio:
		return embedded(i, block)
	case kind == "resource_link" && !to.ResourceLinks:
		return linkText(block)
	}
	return block
}

// embedded returns audio as a resource that is embedded. Such a resource must have a
// uri; that of this one leads nowhere, but is another for each block of a result.
func embedded(i int, audio []byte) []byte {
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
	return wire.EditObject(audio, drop, wire.Member{Key: "type", Text: []byte(`"resource"`)}, wire.Member{Key: "resource", Text: resource})
}

// linkText returns a link to a resource as text.
func linkText(link []byte) []byte {
	text := member(link, "uri")
	if name := member(link, "name"); name != "" {
		text = name + ": " + text
	}
	if description := member(link, "description"); description != "" {
		text += "\n" + description
	}
	return wire.EditObject(link, func(key string) bool { return key != "annotations" && key != "_meta" },
		wire.Member{Key: "type", Text: []byte(`"text"`)}, wire.Member{Key: "text", Text: wire.Quote(text)})
}

// structured returns the result of a tool whose structuredContent, if it has any, is an
// object, and which says in text what that says if the revision does not know of it or
// if it was none.
func structured(result []byte, to Features) []byte {
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
		hasText = hasText || member(block, "type") == "text"
	}
	if hasText || content != nil && content[0] != '[' {
		return result
	}
	text := wire.EditObject(nil, nil, wire.Member{Key: "type", Text: []byte(`"text"`)}, wire.Member{Key: "text", Text: wire.Quote(string(value))})
	return wire.EditObject(result, nil, wire.Member{Key: "content", Text: array(append(blocks, text))})
}

// member returns the string that a member of an object is, "" if it is none.
func member(object []byte, name string) string {
	value, _ := wire.Lookup(object, name)
	return wire.Unquote(value)
}
