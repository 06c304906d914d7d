package httpserver

import "mcpgateway/internal/protocol"

const (
	sessionHeader       = protocol.HeaderSessionID
	versionHeader       = protocol.HeaderProtocolVersion
	methodListen        = protocol.MethodSubscriptionsListen
	codeSessionNotFound = protocol.CodeSessionNotFound
)
