package protocol

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"mcpgateway/internal/wire"
)

// The values of resultType in MCP. Extensions define further values.
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
	ResultTask          = "task"
)

// ResultType returns the resultType of a result. A result without resultType is complete, like all
// legacy results; "" means that resultType is not a string, is empty or occurs twice.
func ResultType(result []byte) string {
	kind, _ := ParseResultType(result)
	return kind
}

// ParseResultType returns the resultType of an untrusted result. It returns an error if the result
// is not an object, or if its resultType is not a string or occurs twice. A null resultType counts
// as absent.
func ParseResultType(result []byte) (string, error) {
	if !mayContainMember(result, "resultType") {
		return ResultComplete, checkObject(result)
	}
	value, times := lookupCounted(result, "resultType")
	if kind, err := (memberValue{value, times}).resultType(); err != nil || kind != ResultComplete {
		return kind, err
	}
	return ResultComplete, checkObject(result)
}

// resultType reads the value of a resultType.
func (f memberValue) resultType() (string, error) {
	switch {
	case f.count > 1:
		return "", errors.New("its resultType occurs twice")
	case wire.IsNull(f.value):
		return ResultComplete, nil
	case f.value[0] != '"':
		return "", fmt.Errorf("its resultType is not a string: %s", wire.Excerpt(f.value))
	}
	return wire.Unquote(f.value), nil
}

func checkObject(result []byte) error {
	if !wire.IsObject(result) {
		return errors.New("its result is not an object")
	}
	return nil
}

// cacheable contains the methods whose complete results contain ttlMs and cacheScope.
var cacheable = map[string]bool{
	MethodServerDiscover: true, MethodToolsList: true, MethodPromptsList: true,
	MethodResourcesList: true, MethodResourcesTemplatesList: true, MethodResourcesRead: true,
}

// ToModern converts the response to a request of this method to the modern generation:
//
//   - A result gets resultType "complete", and the server's Implementation in its _meta, which
//     replaces any other Implementation there.
//   - The complete result of a cacheable method gets ttlMs 0 and cacheScope "private".
//   - fromModern is true if the responder is also modern. Its resultType, ttlMs and cacheScope then
//     stay. In a legacy response members of these names have no meaning, and the values above
//     replace them.
//   - Members whose names differ from those of modern results only in case are removed.
//   - Errors are converted, see [ErrorToModern]. A result that is not an object stays.
func ToModern(m wire.Message, method string, server []byte, fromModern bool) wire.Message {
	result := m.Part(wire.PartResult)
	switch {
	case m.Part(wire.PartError) != nil:
		return responseErrorToModern(m, method)
	case !wire.IsObject(result):
		return m
	}
	members := readModernMembers(result, fromModern)
	var put []wire.Member
	setDefault := func(i int, text string) {
		if !fromModern || wire.IsNull(members[i].value) {
			put = append(put, wire.Member{Key: modernMembers[i], Text: []byte(text)})
		}
	}
	setDefault(memberResultType, `"complete"`)
	if kind, _ := members[memberResultType].resultType(); cacheable[method] &&
		(!fromModern || kind == ResultComplete) {
		setDefault(memberTTL, "0")
		setDefault(memberCacheScope, `"private"`)
	}
	meta := wire.EditObject(members[memberMeta].value, nil,
		wire.Member{Key: MetaServerInfo, Text: server})
	put = append(put, wire.Member{Key: modernMembers[memberMeta], Text: meta})
	return m.EditResult(differsInCaseOnly, put...)
}

// MakePrivate replaces the cacheScope of a modern result by "private", if it has another one: the
// result must not be shared between clients, although it is the same for all that may have it.
func MakePrivate(m wire.Message) wire.Message {
	scope, _ := wire.Lookup(m.Part(wire.PartResult), modernMembers[memberCacheScope])
	if wire.IsNull(scope) || string(scope) == `"private"` {
		return m
	}
	return m.EditResult(nil,
		wire.Member{Key: modernMembers[memberCacheScope], Text: []byte(`"private"`)})
}

// differsInCaseOnly reports whether a key differs only in case from one of modernMembers. Clients
// written in Go would treat such a key as that member.
func differsInCaseOnly(key string) bool {
	for _, name := range modernMembers {
		if key != name && strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

// modernMembers are the members that any modern result may have.
var modernMembers = []string{memberMeta: "_meta", memberResultType: "resultType",
	memberTTL: "ttlMs", memberCacheScope: "cacheScope"}

const (
	memberMeta = iota
	memberResultType
	memberTTL
	memberCacheScope
)

// readModernMembers reads the members of modernMembers from a result. If fromModern is false, it
// reads only _meta, and does not scan a result that cannot contain _meta, because results can be
// large.
func readModernMembers(result []byte, fromModern bool) []memberValue {
	switch {
	case fromModern:
		return lookupAll(result, modernMembers...)
	case mayContainMember(result, modernMembers[memberMeta]):
		return append(lookupAll(result, modernMembers[memberMeta]), memberValue{}, memberValue{},
			memberValue{})
	}
	return make([]memberValue, len(modernMembers))
}

// ToLegacy removes the members of a result that only modern results have, also from its _meta, and
// a _meta that becomes empty. It returns m itself if there are no such members or if m is an error.
func ToLegacy(m wire.Message) wire.Message {
	result := m.Part(wire.PartResult)
	if m.Part(wire.PartError) != nil || !wire.IsObject(result) {
		return m
	}
	bare := false // its _meta is empty after the removal
	rest := mapMember(result, "_meta", func(meta []byte) []byte {
		kept := dropMembers(meta, isModernMetaKey)
		bare = !wire.SameSlice(kept, meta) && string(kept) == "{}"
		return kept
	})
	rest = dropMembers(rest, func(key string) bool {
		return key == "resultType" || key == "ttlMs" || key == "cacheScope" ||
			key == "_meta" && bare
	})
	if wire.SameSlice(rest, result) {
		return m
	}
	return setResult(m, rest)
}

func setResult(m wire.Message, result []byte) wire.Message {
	return m.Splice(wire.Edit{Part: wire.PartResult, Text: result})
}

func responseErrorToModern(m wire.Message, method string) wire.Message {
	failure := m.Part(wire.PartError)
	modern := ErrorToModern(failure, method)
	if wire.SameSlice(modern, failure) {
		return m
	}
	return m.Splice(wire.Edit{Part: wire.PartError, Text: modern})
}

// ErrorToModern converts an error object to the modern generation:
//
//   - "Resource not found" becomes -32602, the code for any unknown param, if its data contains a
//     uri or the method is resources/read.
//   - Codes of the reserved range, which may have another meaning or none, become -32603, and so
//     does any other "Resource not found". CodeMissingCapability with its data stays: the client
//     may lack a capability that the call needs.
func ErrorToModern(failure []byte, method string) []byte {
	data := wire.ReadError(failure).Data
	uri, _ := wire.Lookup(data, "uri")
	required, _ := wire.Lookup(data, "requiredCapabilities")
	converted := 0
	switch code := errorCode(failure); {
	case code == CodeResourceNotFound && (uri != nil || method == MethodResourcesRead):
		converted = wire.CodeInvalidParams
	case code == CodeMissingCapability && wire.IsObject(required):
	case code == CodeResourceNotFound, code <= firstReservedCode && code >= lastReservedCode:
		converted = wire.CodeInternalError
	}
	if converted == 0 {
		return failure
	}
	return mapMember(failure, "code", func([]byte) []byte {
		return strconv.AppendInt(nil, int64(converted), 10)
	})
}

// errorCode returns the code of an error object, 0 if there is none. The JSON text of the code may
// be a decimal such as -32042.0.
func errorCode(failure []byte) int {
	var literal []byte
	wire.Members(failure, func(key string, value []byte, _ int) {
		if key == "code" {
			literal = value // clients use the last duplicate
		}
	})
	code, err := strconv.ParseFloat(string(literal), 64)
	if err != nil || code != math.Trunc(code) || math.Abs(code) > math.MaxInt32 {
		return 0
	}
	return int(code)
}

// ErrorToLegacy converts a modern error to the legacy generation. uri is the resource that the
// request was for, "" if the request was not for a resource. An error with the code -32602 whose
// data contains this uri becomes "Resource not found"; all other errors stay.
func ErrorToLegacy(m wire.Message, uri string) wire.Message {
	e := wire.ReadError(m.Part(wire.PartError))
	if about, _ := wire.Lookup(e.Data, "uri"); e.Code == wire.CodeInvalidParams && uri != "" &&
		wire.Unquote(about) == uri {
		m, _ = m.Set(strconv.AppendInt(nil, CodeResourceNotFound, 10), "error", "code")
	}
	return m
}
