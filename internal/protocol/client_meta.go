package protocol

import (
	"bytes"
	"slices"
	"strings"

	"mcpgateway/internal/wire"
)

// ClientMeta describes the client in the _meta of a modern request.
type ClientMeta struct {
	Revision     string // date of the revision
	Capabilities []byte // capabilities of the client, a JSON object; nil = none
	ClientInfo   []byte // the client's Implementation; nil = not given
	LogLevel     string // least severe level of log messages to send; "" = none
}

// RevisionOf returns the revision in the _meta of a message, "" if there is none. If the value is
// not a string, RevisionOf returns its JSON text.
func RevisionOf(m wire.Message) string {
	value, _ := wire.Lookup(m.Part(wire.PartMeta), MetaProtocolVersion)
	if len(value) > 0 && value[0] == '"' {
		return wire.Unquote(value)
	}
	return string(value)
}

// IsModern reports whether the _meta of a request contains a revision that is not a legacy
// revision. An unknown revision, and a value that is not a string, counts as modern: the error
// response has the modern form, see [ParseClientMeta].
func IsModern(m wire.Message) bool {
	if !mayContainMember(m.Part(wire.PartMeta), MetaProtocolVersion) {
		return false
	}
	date := RevisionOf(m)
	t, known := FindRevision(date)
	return date != "" && (!known || t.Modern)
}

// RejectInBatch returns an error for a modern request inside a batch, because the modern generation
// does not have batches; nil for a legacy request.
func RejectInBatch(m wire.Message) *wire.Error {
	if !IsModern(m) {
		return nil
	}
	return wire.Errorf(wire.CodeInvalidRequest,
		"Invalid request: its protocol revision has no batches; send it on its own")
}

// mayContainMember is a quick check: it returns false if an object cannot have a member of this
// name, because its text contains neither the name nor an escape that could be a part of the name.
func mayContainMember(object []byte, name string) bool {
	has := func(text string) bool {
		return len(object) >= len(text) && bytes.Contains(object, []byte(text))
	}
	return has(name) || has(`\u`) || has(`\/`)
}

// ParseClientMeta reads the client metadata of a modern request. The error has the code -32602 if
// the revision or the capabilities are missing or have the wrong type, or if the log level is
// invalid; it has the code -32022 if the revision is not supported. A clientInfo that is not an
// object is ignored. Null capabilities are removed, because many servers reject them. The result
// may share memory with m.
func ParseClientMeta(m wire.Message) (ClientMeta, *wire.Error) {
	meta := m.Part(wire.PartMeta)
	get := func(key string) []byte { v, _ := wire.Lookup(meta, key); return v }
	c := ClientMeta{Revision: RevisionOf(m), Capabilities: get(MetaClientCapabilities),
		ClientInfo: get(MetaClientInfo)}
	switch date := get(MetaProtocolVersion); {
	case wire.IsNull(date) || date[0] != '"':
		return c, wire.Errorf(wire.CodeInvalidParams, "Invalid params: _meta needs %s",
			MetaProtocolVersion)
	case !wire.IsObject(c.Capabilities):
		return c, wire.Errorf(wire.CodeInvalidParams, "Invalid params: _meta needs %s, an object",
			MetaClientCapabilities)
	}
	if t, known := FindRevision(c.Revision); !known || !t.Modern {
		return c, UnsupportedVersionError(c.Revision)
	}
	c.Capabilities = wire.WithoutNulls(c.Capabilities)
	if !wire.IsObject(c.ClientInfo) {
		c.ClientInfo = nil
	}
	if level := get(MetaLogLevel); !wire.IsNull(level) {
		if c.LogLevel = wire.Unquote(level); LogSeverity(c.LogLevel) < 0 {
			return c, wire.Errorf(wire.CodeInvalidParams, "Invalid params: %s is one of %s",
				MetaLogLevel, strings.Join(LogLevels, ", "))
		}
	}
	return c, nil
}

// maxRequestedVersion bounds, in bytes, an unsupported revision in the error data.
const maxRequestedVersion = 100

// UnsupportedVersionError returns the error for a revision that the gateway does not support.
func UnsupportedVersionError(date string) *wire.Error { return versionError(date, RevisionDates()) }

// UnsupportedLegacyVersionError is UnsupportedVersionError for a transport that supports only
// legacy revisions, such as HTTP+SSE. The error lists only these revisions.
func UnsupportedLegacyVersionError(date string) *wire.Error {
	return versionError(date, slices.DeleteFunc(RevisionDates(), func(date string) bool {
		t, _ := FindRevision(date)
		return t.Modern
	}))
}

func versionError(date string, all []string) *wire.Error {
	date = date[:min(len(date), maxRequestedVersion)] // keeps the response short
	e := wire.Errorf(CodeUnsupportedVersion, "Unsupported protocol version: supported are %s",
		strings.Join(all, ", "))
	e.Data = wire.Encode(map[string]any{"supported": all,
		"requested": strings.ToValidUTF8(date, "\uFFFD")})
	return e
}

// AddTo returns the request m with this metadata, which replaces all modern members of its _meta.
// Other members of _meta stay.
func (c ClientMeta) AddTo(m wire.Message) wire.Message {
	if c.Capabilities == nil {
		c.Capabilities = []byte("{}")
	}
	put := []wire.Member{
		{Key: MetaProtocolVersion, Text: wire.Quote(c.Revision)},
		{Key: MetaClientCapabilities, Text: c.Capabilities},
	}
	if c.ClientInfo != nil {
		put = append(put, wire.Member{Key: MetaClientInfo, Text: c.ClientInfo})
	}
	if c.LogLevel != "" {
		put = append(put, wire.Member{Key: MetaLogLevel, Text: wire.Quote(c.LogLevel)})
	}
	return setMeta(m, wire.EditObject(m.Part(wire.PartMeta), isModernMetaKey, put...))
}

// StripMeta removes the modern members from the _meta of a message. An empty _meta stays.
func StripMeta(m wire.Message) wire.Message {
	meta := m.Part(wire.PartMeta)
	if !mayContainMember(meta, metaPrefix) {
		return m
	}
	return setMeta(m, wire.EditObject(meta, isModernMetaKey))
}

// StripParamsMeta removes the modern members from the _meta of params, and a _meta that becomes
// empty. nil means no params.
func StripParamsMeta(params []byte) []byte {
	meta, _ := wire.Lookup(params, "_meta")
	if !wire.IsObject(meta) || !mayContainMember(meta, metaPrefix) {
		return params
	}
	rest := wire.EditObject(meta, isModernMetaKey)
	if string(rest) == "{}" {
		return wire.EditObject(params, func(key string) bool { return key == "_meta" })
	}
	return wire.EditObject(params, nil, wire.Member{Key: "_meta", Text: rest})
}

func isModernMetaKey(key string) bool {
	switch key {
	case MetaProtocolVersion, MetaClientCapabilities, MetaClientInfo, MetaLogLevel, MetaServerInfo,
		MetaSubscriptionID:
		return true
	}
	return false
}

// setMeta replaces the _meta of a request or notification, and adds params and _meta if they are
// missing. It returns m itself if the params are not an object.
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
