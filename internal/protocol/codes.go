package protocol

// Error codes of the MCP specification. Package wire has those of JSON-RPC, and
// [wire.CodeNotInitialized], the other meaning of -32002. Codes from -32020 down belong to the
// modern generation.
const (
	CodeServerError            = -32000 // unspecified; common in SDKs
	CodeSessionNotFound        = -32001 // common in SDKs, with status 404
	CodeResourceNotFound       = -32002 // up to 2025-11-25; later -32602 with data.uri
	CodeHeaderMismatch         = -32020
	CodeMissingCapability      = -32021 // data.requiredCapabilities
	CodeUnsupportedVersion     = -32022 // data.supported, data.requested
	CodeURLElicitationRequired = -32042 // only 2025-11-25; data.elicitations
)

// The codes from firstReservedCode down to lastReservedCode are reserved for the specification.
const (
	firstReservedCode = -32020
	lastReservedCode  = -32099
)
