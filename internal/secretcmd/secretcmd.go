// Package secretcmd runs programs that print a secret, such as op read, vault and pass.
package secretcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"mcpgateway/internal/procgroup"
)

const (
	// Timeout is the time after which a program is killed.
	Timeout = 10 * time.Second

	maxOutput = 64 << 10 // kept bytes of stdout, and of stderr
	// drainTimeout is the time for which the output is read after the end of the program, because a
	// process that it has left behind may hold stdout open.
	drainTimeout = 500 * time.Millisecond
)

// errTimeout is the cause of a context whose Timeout has passed.
var errTimeout = fmt.Errorf("it did not end within %s and was killed", Timeout)

// Output runs the program words[0] with the arguments words[1:], without a shell, and returns the
// first line of its stdout, without the end of the line. The program is looked up in PATH. It gets
// the environment of this process, variables that are not set there, an empty stdin, and a process
// group of its own, which is killed after the end of the program, after Timeout, or when ctx is
// done.
//
// It is an error if the program cannot be started, does not exit with code 0, or prints an empty
// line. The error contains what the program wrote to stderr, which may contain secrets; the output
// of the program is replaced by ***.
func Output(ctx context.Context, words []string, variables map[string]string) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errTimeout)
	defer cancel()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = environment(variables)
	var stdout, stderr limitedBuffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, drainTimeout
	if err := procgroup.Run(ctx, cmd); err != nil {
		return "", startError(words[0], err)
	}
	line, _, _ := strings.Cut(stdout.String(), "\n")
	line = strings.TrimSuffix(line, "\r")
	var problem string
	switch {
	case ctx.Err() != nil && !cmd.ProcessState.Success():
		problem = context.Cause(ctx).Error()
	case !cmd.ProcessState.Success():
		problem = "it ended with " + cmd.ProcessState.String()
	case strings.TrimSpace(line) == "":
		problem = "the first line of its output is empty"
	case len(line) == maxOutput:
		problem = fmt.Sprintf("the first line of its output is longer than %d KiB", maxOutput>>10)
	default:
		return line, nil
	}
	return "", errors.New(problem + outputOf(stderr.String(), stdout.String()))
}

// environment returns the environment of this process and the variables that are not set in it.
func environment(variables map[string]string) []string {
	env := os.Environ()
	for name, value := range variables {
		if _, set := os.LookupEnv(name); !set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// startError describes why a program could not be started.
func startError(program string, err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("there is no program %q in PATH", program)
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("it cannot be started: %w", err)
}

// outputOf returns the text of stderr for an error, after a colon, without the lines of stdout.
func outputOf(stderr, stdout string) string {
	text := strings.TrimSpace(stderr)
	for line := range strings.Lines(stdout) {
		if line = strings.TrimSpace(line); len(line) >= 4 {
			text = strings.ReplaceAll(text, line, "***")
		}
	}
	if text == "" {
		return ""
	}
	return ": " + text
}

// A limitedBuffer keeps the first maxOutput bytes and discards the rest.
type limitedBuffer struct{ strings.Builder }

var _ io.Writer = new(limitedBuffer)

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Builder.Write(p[:min(len(p), maxOutput-b.Len())])
	return len(p), nil
}
