//go:build unix

package main

import (
	"context"
	"strings"

	"mcpgateway/internal/wire"
)

// scriptedResponses is a transport that answers each call with the same lines.
type scriptedResponses struct {
	clientTransport
	c     *client
	lines []string
}

func (s scriptedResponses) send(_ context.Context, m wire.Message,
	_ string) (over bool, err error) {
	for _, line := range s.lines {
		line = strings.ReplaceAll(line, "ID", string(m.ID()))
		s.c.receive([]byte(strings.ReplaceAll(line, "ARGS", string(m.Part(wire.PartArguments)))))
	}
	return true, nil
}
