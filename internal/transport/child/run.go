package child

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"mcpgateway/internal/procgroup"
)

// outputLimit bounds the output of [Run], in bytes.
const outputLimit = 64 << 10

// Run runs a program that does not use MCP, waits until it ends, and returns the first outputLimit
// bytes of its stdout and stderr, without surrounding white space. It also returns an error if the
// program was killed or its exit status is not 0. Run uses only Path, Args, Env and Dir of the
// Command. When ctx is done, or this process dies, the program and its process group are killed.
func Run(ctx context.Context, c Command) (output string, err error) {
	path, err := lookPath(c.Path, c.Dir, c.Env)
	if err != nil {
		return "", err
	}
	var written headBuffer
	cmd := &exec.Cmd{
		Path: path, Args: append([]string{c.Path}, c.Args...), Env: c.Env, Dir: c.Dir,
		WaitDelay: pipeDrainTimeout,
	}
	cmd.Stdout, cmd.Stderr = &written, &written // equal: no concurrent writes
	g, err := procgroup.Start(cmd)
	if err != nil {
		return "", explainStartError(path, err)
	}
	stop := context.AfterFunc(ctx, g.Kill)
	g.Wait(cmd)
	g.KillOrphans(time.Second)
	output = strings.TrimSpace(strings.ToValidUTF8(written.String(), "\uFFFD"))
	switch state := cmd.ProcessState; {
	case !stop():
		return output, fmt.Errorf("%s: %w", c.Path, context.Cause(ctx))
	case !state.Success():
		return output, fmt.Errorf("%s: %s", c.Path, exitStatus(state))
	}
	return output, nil
}

// A headBuffer keeps the first outputLimit bytes that are written to it.
type headBuffer struct{ bytes.Buffer }

func (b *headBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, outputLimit-b.Len()))])
	return len(p), nil
}
