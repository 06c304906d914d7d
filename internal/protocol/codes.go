package protocol

// Error codes of the specification, beside those of JSON-RPC, which package wire has.
// Those from -32020 down are of the stateless era; see [wire.CodeNotInitialized] for
// the other meaning of -32002.
const (
	CodeResourceNotFound       = -32002 // up to 2025-11-25; later ones have -32602 with data.uri
	CodeHeaderMismatch         = -32020
	CodeMissingCapability      = -32021 // data.requiredCapabilities
	CodeUnsupportedVersion     = -32022 // data.supported, data.requested
	CodeURLElicitationRequired = -32042 // 2025-11-25 alone; data.elicitations
)

// Those from firstReserved down to lastReserved are the specification's own: nobody else
// may give one a meaning.
const (
	firstReserved = -32020
	lastReserved  = -32099
)
