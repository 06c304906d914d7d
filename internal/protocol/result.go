package protocol

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// The values of resultType. Extensions have others.
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
	ResultTask          = "task"
)

// ResultType returns the resultType of a result. One that does not say is complete, as
// those of the session era are; "" stands for what is no string, or stands there twice.
func ResultType(result []byte) string {
	kind, _ := ParseResultType(result)
	return kind
}

// ParseResultType is ResultType for a result that may be anything. It fails if that is no object, or
// says of what type it is in a way that cannot be read.
func ParseResultType(result []byte) (string, error) {
	if !mayHave(result, "resultType") {
		return ResultComplete, isObject(result)
	}
	value, times := lookup(result, "resultType")
	if kind, err := (found{value, times}).kind(); err != nil || kind != ResultComplete {
		return kind, err
	}
	return ResultComplete, isObject(result)
}

// kind reads a resultType.
func (f found) kind() (string, error) {
	switch {
	case f.times > 1:
		return "", errors.New("its resultType stands there twice")
	case wire.IsNull(f.value):
		return ResultComplete, nil
	case f.value[0] != '"':
		return "", fmt.Errorf("its resultType is no string: %s", wire.Excerpt(f.value))
	}
	return wire.Unquote(f.value), nil
}

func isObject(result []byte) error {
	if !wire.IsObject(result) {
		return errors.New("its result is no object")
	}
	return nil
}

// cacheable are the requests whose complete results say how long they are good for.
var cacheable = map[string]bool{
	"server/discover": true, "tools/list": true, "prompts/list": true, "resources/list": true,
	"resources/templates/list": true, "resources/read": true,
}

// ToModern returns the answer to a request of that method as clients of the stateless era
// read it: a result says that it is complete, who the server is (an Implementation,
// in the place of any other), and, where it must, that it is good for no time and for
// nobody else. What it says itself of that stays, if stateless says that who has answered
// is of that era, too: in the other one members of these names mean nothing, whatever they
// say. Errors are put into the era's words.
func ToModern(m wire.Message, method string, server []byte, stateless bool) wire.Message {
	result := m.Part(wire.PartResult)
	switch {
	case m.Part(wire.PartError) != nil:
		return modernError(m, method)
	case !wire.IsObject(result):
		return m
	}
	said := ofEra(result, stateless)
	var put []wire.Member
	say := func(i int, text string) {
		if !stateless || wire.IsNull(said[i].value) {
			put = append(put, wire.Member{Key: ofResults[i], Text: []byte(text)})
		}
	}
	say(resultType, `"complete"`)
	if kind, _ := said[resultType].kind(); cacheable[method] && (!stateless || kind == ResultComplete) {
		say(ttlMs, "0")
		say(cacheScope, `"private"`)
	}
	meta := wire.EditObject(said[resultMeta].value, nil, wire.Member{Key: metaServer, Text: server})
	put = append(put, wire.Member{Key: ofResults[resultMeta], Text: meta})
	return m.EditResult(otherCase, put...)
}

// otherCase reports whether a key differs only in case from one of ofResults: clients written in Go
// would take it for that member.
func otherCase(key string) bool {
	for _, name := range ofResults {
		if key != name && strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// ofResults are the members that results have in the stateless era, whatever they are of.
var ofResults = []string{resultMeta: "_meta", resultType: "resultType", ttlMs: "ttlMs", cacheScope: "cacheScope"}

const (
	resultMeta = iota
	resultType
	ttlMs
	cacheScope
)

// ofEra returns what a result has of ofResults; all but its _meta means nothing unless stateless. What
// a glance shows not to be there is not looked for: results are large.
func ofEra(result []byte, stateless bool) []found {
	switch {
	case stateless:
		return lookups(result, ofResults...)
	case mayHave(result, ofResults[resultMeta]):
		return append(lookups(result, ofResults[resultMeta]), found{}, found{}, found{})
	}
	return make([]found, len(ofResults))
}

// ToLegacy returns the answer to a request as clients of the session era read it:
// without what only the stateless one has. One that has none of that is returned as
// it is.
func ToLegacy(m wire.Message) wire.Message {
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

func modernError(m wire.Message, method string) wire.Message {
	failure := m.Part(wire.PartError)
	modern := ErrorToModern(failure, method)
	if same(modern, failure) {
		return m
	}
	return m.Splice(wire.Edit{Part: wire.PartError, Text: modern})
}

// ErrorToModern puts an error object into the words of the stateless era, as [ToModern] does: a
// resource that is not found has the code of any other param that is unknown, and none has
// a code that means something else there than what it was said for, or nothing. Of those
// of the era a backend's can be the client's in one case: it has not declared what the
// call needs.
func ErrorToModern(failure []byte, method string) []byte {
	data := wire.ReadError(failure).Data
	uri, _ := wire.Lookup(data, "uri")
	required, _ := wire.Lookup(data, "requiredCapabilities")
	is := ""
	switch code := codeOf(failure); {
	case code == CodeResourceNotFound && (uri != nil || method == "resources/read"):
		is = "-32602"
	case code == CodeMissingCapability && wire.IsObject(required):
	case code == CodeResourceNotFound, code <= firstReserved && code >= lastReserved:
		is = "-32603"
	}
	if is == "" {
		return failure
	}
	return mapMember(failure, "code", func([]byte) []byte { return []byte(is) })
}

// codeOf returns the code of an error, be it written as -32042.0; 0 if it is none.
func codeOf(failure []byte) int {
	var literal []byte
	wire.Members(failure, func(key string, value []byte, _ int) {
		if key == "code" {
			literal = value // the last is what is read where it stands there twice
		}
	})
	code, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || code != math.Trunc(code) || math.Abs(code) > math.MaxInt32 {
		return 0
	}
	return int(code)
}

// ErrorToLegacy puts an error of the stateless era into the words of the session era,
// the answer to a request for the resource uri, "" if it was for none.
func ErrorToLegacy(m wire.Message, uri string) wire.Message {
	e := wire.ReadError(m.Part(wire.PartError))
	if about, _ := wire.Lookup(e.Data, "uri"); e.Code == wire.CodeInvalidParams && uri != "" && wire.Unquote(about) == uri {
		m, _ = m.Set([]byte("-32002"), "error", "code")
	}
	return m
}
