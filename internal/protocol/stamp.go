package protocol

import (
	"bytes"
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// The members of _meta that MCP keeps for itself begin so.
const reserved = "io.modelcontextprotocol/"

// Members of _meta that are of the stateless era. Those that a request carries are
// read and written as a [ClientMeta].
const (
	metaRevision     = reserved + "protocolVersion"
	metaCapabilities = reserved + "clientCapabilities"
	metaClient       = reserved + "clientInfo"
	metaLevel        = reserved + "logLevel"
	metaServer       = reserved + "serverInfo"
	metaSubscription = reserved + "subscriptionId"
)

// A ClientMeta is what a request of the stateless era says of who asks.
type ClientMeta struct {
	Revision     string // its date
	Capabilities []byte // of the client, a JSON object; nil = it has none
	ClientInfo   []byte // its Implementation; nil = it does not say
	LogLevel     string // from which it wants log messages, "" = it wants none
}

// RevisionOf returns the revision that a message names in its _meta, "" if it names none.
// What stands there and is no string is named, too, by its JSON text.
func RevisionOf(m wire.Message) string {
	value, _ := wire.Lookup(m.Part(wire.PartMeta), metaRevision)
	if len(value) > 0 && value[0] == '"' {
		return wire.Unquote(value)
	}
	return string(value)
}

// IsModern reports whether a request is of the stateless era: it names a revision
// that is not one of those with sessions. Be it one that is not known: then it is
// answered as this era has it, see [ParseClientMeta].
func IsModern(m wire.Message) bool {
	if !mayHave(m.Part(wire.PartMeta), metaRevision) {
		return false
	}
	date := RevisionOf(m)
	t, known := FindRevision(date)
	return date != "" && (!known || t.Modern)
}

// RejectInBatch returns what a request is refused with that stands in a batch and is of the
// stateless era, which has none; nil if it is not.
func RejectInBatch(m wire.Message) *wire.Error {
	if !IsModern(m) {
		return nil
	}
	return wire.Errorf(wire.CodeInvalidRequest, "Invalid request: it is of a revision that has no batches, and has to be sent alone")
}

// mayHave reports whether a member of that name may stand in an object's text: it is
// there, or so is an escape of the kind in which it could be written.
func mayHave(object []byte, name string) bool {
	has := func(text string) bool { return len(object) >= len(text) && bytes.Contains(object, []byte(text)) }
	return has(name) || has(`\u`) || has(`\/`)
}

// ParseClientMeta reads what a request of the stateless era says of who asks. It fails with
// -32602 if something is missing or is not as it must be, and with -32022 if the
// revision is none that is spoken here. Capabilities that are null are left out: many servers refuse
// them. The ClientMeta may share its bytes with m.
func ParseClientMeta(m wire.Message) (ClientMeta, *wire.Error) {
	meta := m.Part(wire.PartMeta)
	get := func(key string) []byte { v, _ := wire.Lookup(meta, key); return v }
	s := ClientMeta{Revision: RevisionOf(m), Capabilities: get(metaCapabilities), ClientInfo: get(metaClient)}
	switch date := get(metaRevision); {
	case wire.IsNull(date) || date[0] != '"':
		return s, wire.Errorf(wire.CodeInvalidParams, "Invalid params: _meta needs %s", metaRevision)
	case !wire.IsObject(s.Capabilities):
		return s, wire.Errorf(wire.CodeInvalidParams, "Invalid params: _meta needs %s, an object", metaCapabilities)
	}
	if t, known := FindRevision(s.Revision); !known || !t.Modern {
		return s, UnsupportedVersionError(s.Revision)
	}
	s.Capabilities = wire.WithoutNulls(s.Capabilities)
	if !wire.IsObject(s.ClientInfo) {
		s.ClientInfo = nil
	}
	if level := get(metaLevel); !wire.IsNull(level) {
		if s.LogLevel = wire.Unquote(level); LogSeverity(s.LogLevel) < 0 {
			return s, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s is one of %s", metaLevel, strings.Join(LogLevels, ", "))
		}
	}
	return s, nil
}

// maxNamed bounds what is told of a revision that is not spoken here, in bytes.
const maxNamed = 100

// UnsupportedVersionError returns the error for a revision that is not spoken here.
func UnsupportedVersionError(date string) *wire.Error { return unsupported(date, RevisionDates()) }

// UnsupportedLegacyVersionError is UnsupportedVersionError where no revision is spoken but those with
// sessions.
func UnsupportedLegacyVersionError(date string) *wire.Error {
	return unsupported(date, slices.DeleteFunc(RevisionDates(), func(date string) bool {
		t, _ := FindRevision(date)
		return t.Modern
	}))
}

func unsupported(date string, all []string) *wire.Error {
	date = date[:min(len(date), maxNamed)] // whatever stands there, an answer is short
	e := wire.Errorf(CodeUnsupportedVersion, "Unsupported protocol version: supported are %s", strings.Join(all, ", "))
	e.Data = wire.Encode(map[string]any{"supported": all, "requested": strings.ToValidUTF8(date, "\uFFFD")})
	return e
}

// AddTo returns the request m with the stamp on it, in the place of any that it has. What
// else its _meta says stays as it is.
func (s ClientMeta) AddTo(m wire.Message) wire.Message {
	if s.Capabilities == nil {
		s.Capabilities = []byte("{}")
	}
	put := []wire.Member{
		{Key: metaRevision, Text: wire.Quote(s.Revision)},
		{Key: metaCapabilities, Text: s.Capabilities},
	}
	if s.ClientInfo != nil {
		put = append(put, wire.Member{Key: metaClient, Text: s.ClientInfo})
	}
	if s.LogLevel != "" {
		put = append(put, wire.Member{Key: metaLevel, Text: wire.Quote(s.LogLevel)})
	}
	return setMeta(m, wire.EditObject(m.Part(wire.PartMeta), isStamp, put...))
}

// StripMeta returns a message without the members of _meta that are of the stateless era.
func StripMeta(m wire.Message) wire.Message {
	meta := m.Part(wire.PartMeta)
	if !mayHave(meta, reserved) {
		return m
	}
	return setMeta(m, wire.EditObject(meta, isStamp))
}

// StripParamsMeta is StripMeta for the params of a message, nil for none.
func StripParamsMeta(params []byte) []byte {
	meta, _ := wire.Lookup(params, "_meta")
	if !wire.IsObject(meta) || !mayHave(meta, reserved) {
		return params
	}
	rest := wire.EditObject(meta, isStamp)
	if string(rest) == "{}" {
		return wire.EditObject(params, func(key string) bool { return key == "_meta" })
	}
	return wire.EditObject(params, nil, wire.Member{Key: "_meta", Text: rest})
}

func isStamp(key string) bool {
	switch key {
	case metaRevision, metaCapabilities, metaClient, metaLevel, metaServer, metaSubscription:
		return true
	}
	return false
}

// setMeta returns a request or notification with another _meta.
func setMeta(m wire.Message, meta []byte) wire.Message {
	params := m.Part(wire.PartParams)
	switch {
	case m.Part(wire.PartMeta) != nil:
		return m.Splice(wire.Edit{Part: wire.PartMeta, Text: meta})
	case wire.IsObject(params):
		m, _ = m.Set(meta, "params", "_meta")
	case wire.IsNull(params):
		m, _ = m.Set(wire.EditObject(nil, nil, wire.Member{Key: "_meta", Text: meta}), "params")
	}
	return m
}

// SetSubscriptionID returns a notification with the id of the subscription on it by which
// it is sent, the JSON text of that of the request subscriptions/listen.
func SetSubscriptionID(m wire.Message, id wire.ID) wire.Message {
	put := wire.Member{Key: metaSubscription, Text: []byte(id)}
	return setMeta(m, wire.EditObject(m.Part(wire.PartMeta), nil, put))
}

// SubscriptionID returns the id of the subscription by which a notification is sent, ""
// if it does not say.
func SubscriptionID(m wire.Message) wire.ID {
	value, _ := wire.Lookup(m.Part(wire.PartMeta), metaSubscription)
	return wire.ID(value)
}
