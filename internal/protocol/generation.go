package protocol

// A Generation is one of the two forms of the protocol.
type Generation uint8

const (
	UnknownGeneration Generation = iota
	Legacy                       // revisions with initialize and sessions
	Modern                       // revisions without sessions: each request has client metadata
)
