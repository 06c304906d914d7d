//go:build unix

package main

import (
	"context"
	"strings"

	"mcpgateway/internal/wire"
)

// said is a gateway that answers each call with the same lines.
type said struct {
	way
	c     *client
	lines []string
}

func (s said) send(_ context.Context, m wire.Message, _ string) (over bool, err error) {
	for _, line := range s.lines {
		line = strings.ReplaceAll(line, "ID", string(m.ID()))
		s.c.hear([]byte(strings.ReplaceAll(line, "ARGS", string(m.Part(wire.PartArguments)))))
	}
	return true, nil
}
