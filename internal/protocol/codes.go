package protocol

// Error codes of MCP. The first two are customary, the others are in the specification. Codes from
// -32020 down belong to the modern generation, except CodeURLElicitationRequired. Package wire has
// the codes of JSON-RPC, and [wire.CodeNotInitialized], the other meaning of -32002.
const (
	CodeServerError            = -32000 // not in the specification; used by SDK examples
	CodeSessionNotFound        = -32001 // used by the TypeScript SDK and others, with status 404
	CodeResourceNotFound       = -32002 // up to 2025-11-25; later -32602 with data.uri
	CodeHeaderMismatch         = -32020
	CodeMissingCapability      = -32021 // data.requiredCapabilities
	CodeUnsupportedVersion     = -32022 // data.supported, data.requested
	CodeURLElicitationRequired = -32042 // only 2025-11-25; data.elicitations
)

// firstReservedCode and lastReservedCode are the bounds of the codes that are reserved for the
// specification.
const (
	firstReservedCode = -32020
	lastReservedCode  = -32099
)
