package revision

import (
	"math"
	"strconv"

	"mcpgateway/wire"
)

// The values of resultType. Extensions have others.
const (
	Complete      = "complete"
	InputRequired = "input_required"
	Task          = "task"
)

// TypeOf returns the resultType of a result. One that does not say is complete, as
// those of the session era are; "" stands for what is no string, or stands there twice.
func TypeOf(result []byte) string {
	if !mayHave(result, "resultType") {
		return Complete
	}
	value, times := lookup(result, "resultType")
	if times == 0 || string(value) == "null" {
		return Complete
	}
	return wire.Unquote(value)
}

// cacheable are the requests whose complete results say how long they are good for.
var cacheable = map[string]bool{
	"server/discover": true, "tools/list": true, "prompts/list": true, "resources/list": true,
	"resources/templates/list": true, "resources/read": true,
}

// Modern returns the answer to a request of that method as clients of the stateless era
// read it: a result says that it is complete, who the server is (an Implementation,
// in the place of any other), and, where it must, that it is good for no time and for
// nobody else. What it says itself of that stays, if stateless says that who has answered
// is of that era, too: in the other one members of these names mean nothing, whatever they
// say. Errors are put into the era's words.
func Modern(m wire.Message, method string, server []byte, stateless bool) wire.Message {
	result := m.Part(wire.PartResult)
	switch {
	case m.Part(wire.PartError) != nil:
		return modernError(m, method, stateless)
	case !wire.IsObject(result):
		return m
	}
	var put []wire.Member
	say := func(key, text string) {
		if value, _ := wire.Lookup(result, key); !stateless || wire.IsNull(value) {
			put = append(put, wire.Member{Key: key, Text: []byte(text)})
		}
	}
	say("resultType", `"complete"`)
	if cacheable[method] && (!stateless || TypeOf(result) == Complete) {
		say("ttlMs", "0")
		say("cacheScope", `"private"`)
	}
	meta, _ := wire.Lookup(result, "_meta")
	put = append(put, wire.Member{Key: "_meta", Text: wire.Revise(meta, nil, wire.Member{Key: metaServer, Text: server})})
	return setResult(m, wire.Revise(result, nil, put...))
}

// Classic returns the answer to a request as clients of the session era read it:
// without what only the stateless one has. One that has none of that is returned as
// it is.
func Classic(m wire.Message) wire.Message {
	result := m.Part(wire.PartResult)
	if m.Part(wire.PartError) != nil || !wire.IsObject(result) {
		return m
	}
	bare := false // nothing is left of its _meta
	rest := mapMember(result, "_meta", func(meta []byte) []byte {
		kept := strip(meta, isStamp)
		bare = !same(kept, meta) && string(kept) == "{}"
		return kept
	})
	rest = strip(rest, func(key string) bool {
		return key == "resultType" || key == "ttlMs" || key == "cacheScope" || key == "_meta" && bare
	})
	if same(rest, result) {
		return m
	}
	return setResult(m, rest)
}

func setResult(m wire.Message, result []byte) wire.Message {
	return m.Splice(wire.Edit{Part: wire.PartResult, Text: result})
}

// modernError puts an error into the words of the stateless era: a resource that is not
// found has the code of any other param that is unknown, and none has a code that means
// something else there than what it was said for, or nothing. Of those of the era a
// backend's can be the client's in one case: it has not declared what the call needs.
func modernError(m wire.Message, method string, stateless bool) wire.Message {
	failure := m.Part(wire.PartError)
	data := wire.ReadError(failure).Data
	code := codeOf(failure)
	uri, _ := wire.Lookup(data, "uri")
	required, _ := wire.Lookup(data, "requiredCapabilities")
	switch {
	case code == CodeNoResource && (uri != nil || method == "resources/read"):
		m, _ = m.Set([]byte("-32602"), "error", "code")
	case code == CodeMissingCapability && stateless && wire.IsObject(required):
	case code == CodeNoResource, code <= firstReserved && code >= lastReserved:
		m, _ = m.Set([]byte("-32603"), "error", "code")
	}
	return m
}

// codeOf returns the code of an error, be it written as -32042.0; 0 if it is none.
func codeOf(failure []byte) int {
	literal, _ := wire.Lookup(failure, "code")
	code, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || code != math.Trunc(code) || math.Abs(code) > math.MaxInt32 {
		return 0
	}
	return int(code)
}

// ClassicError puts an error of the stateless era into the words of the session era,
// the answer to a request for the resource uri, "" if it was for none.
func ClassicError(m wire.Message, uri string) wire.Message {
	e := wire.ReadError(m.Part(wire.PartError))
	if about, _ := wire.Lookup(e.Data, "uri"); e.Code == wire.CodeInvalidParams && uri != "" && wire.Unquote(about) == uri {
		m, _ = m.Set([]byte("-32002"), "error", "code")
	}
	return m
}
