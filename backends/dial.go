package backends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mcpgateway/backends/internal/containers"
	"mcpgateway/internal/config"
	"mcpgateway/internal/demo"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/text"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/transport/httpclient"
	"mcpgateway/internal/wire"
)

// A dialMode is a way to dial a backend.
type dialMode uint8

const (
	dialStdio          dialMode = iota // a child process, or an embedded server
	dialHTTPStateless                  // HTTP for a modern server: there is no session
	dialHTTPStreamable                 // streamable HTTP with sessions
	dialHTTPSSE                        // HTTP+SSE
)

// dial opens the Conn that the configuration describes, or calls Options.Dial. mode matters only
// for a backend behind a URL, and so does onReconnect; see httpclient.Options.
func (b *Backend) dial(mode dialMode, onReconnect func(wire.ID),
	onStart func(pid int)) (transport.Conn, error) {
	c := b.cfg
	switch {
	case b.set.Dial != nil:
		return b.set.Dial(c)
	case c.Embedded != "":
		return demo.Connect(c.Name), nil
	case c.URL != "":
		o := httpclient.Options{URL: c.URL, Headers: c.Headers, TLS: httpclient.ClientTLS(c.TLS),
			Via: b.set.Via, Limit: b.set.MaxMessage,
			Quota: b.receiveQuota, Log: b.outputLog, OnReconnect: onReconnect}
		if b.login != nil {
			o.Authorizer = b.login.Authorization
		}
		switch mode {
		case dialHTTPStateless:
			o.RequestHeaders = b.requestHeaders
			return httpclient.DialStateless(o), nil
		case dialHTTPSSE:
			return httpclient.DialHTTPSSE(o), nil
		}
		return httpclient.DialStreamable(o), nil
	}
	if c.Cwd != "" {
		if info, err := os.Stat(c.Cwd); err != nil || !info.IsDir() {
			dir := c.Cwd
			if all, err := filepath.Abs(dir); err == nil {
				dir = all
			}
			return nil, fmt.Errorf("its cwd %s is not a directory", dir)
		}
	}
	level := b.set.StderrLevel
	if b.shared.lastStartFailed() {
		level = min(level, slog.LevelDebug) // repeated starts mostly repeat the output
	}
	container, args := b.set.containers.Prepare(b.containerBackend())
	child, err := child.Start(child.Command{
		Path: c.Command, Args: args, Dir: c.Cwd, Limit: b.set.MaxMessage, Quota: b.receiveQuota,
		Env:          b.env(),
		StallTimeout: stallTimeout(c.CallTimeout),
		Mask:         b.set.Mask,
		OnStderr: func(line string) {
			b.outputLog.Log(b.set.StderrContext, level, "stderr: "+line)
		},
		OnRepair: func() { b.outputLog.Warn("backend sent invalid UTF-8; repaired") },
	})
	if err != nil {
		if container != nil {
			container.RemoveFiles()
		}
		return nil, fmt.Errorf("start: %w", err)
	}
	onStart(child.Pid())
	b.logStart(child.Pid(), args)
	if container != nil {
		return container.Conn(child, b.containerBackend()), nil
	}
	return child, nil
}

// env returns the environment of the backend's process.
func (b *Backend) env() []string { return childEnv(b.cfg.InheritEnv, b.set.ChildEnv, b.cfg.Env) }

// containerBackend returns the process of the backend, which may run a container.
func (b *Backend) containerBackend() containers.Backend {
	return containers.Backend{Name: b.cfg.Name, Command: b.cfg.Command, Args: b.cfg.Args,
		Cwd: b.cfg.Cwd, Env: b.env, Log: b.log}
}

// maxLoggedCommand bounds the logged part of a command, in bytes.
const maxLoggedCommand = 1000

// logStart logs the process of the backend and its command, without secrets.
func (b *Backend) logStart(pid int, args []string) {
	if !b.outputLog.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	command := b.set.Mask(strings.Join(append([]string{b.cfg.Command},
		config.HideArguments(args)...), " "))
	b.outputLog.Debug("started process", "id", pid, "text", text.Truncate(command, maxLoggedCommand))
}

// stallTimeout returns the longest time for which a child may leave its input unread and send
// nothing: one second more than the timeout of its calls. Without a call timeout the result is 0,
// no limit, because the child may work on a call forever and read nothing meanwhile; limits.message
// then bounds the unread input.
func stallTimeout(callTimeout time.Duration) time.Duration {
	if callTimeout == 0 {
		return 0
	}
	return callTimeout + time.Second
}

// requestHeaders returns the HTTP headers of a message to a modern backend.
func (b *Backend) requestHeaders(m wire.Message) map[string]string {
	var schema []byte
	if m.Method() == protocol.MethodToolsCall {
		schema = b.lists.headerSchema(m.Name())
	}
	return protocol.RequestHeaders(m, schema)
}

// isProcess reports whether the backend is a process.
func (b *Backend) isProcess() bool { return b.cfg.Command != "" }

// hasManyStreams reports whether the backend's messages may arrive on several streams, with no
// order between them. This includes HTTP+SSE, because some servers respond to a POST in its HTTP
// response.
func (b *Backend) hasManyStreams() bool { return b.cfg.URL != "" }

// fallsBackToSSE reports whether HTTP+SSE is to be tried after err: the backend has no streamable
// HTTP, and the configuration does not exclude HTTP+SSE.
func (b *Backend) fallsBackToSSE(err error) bool {
	return errors.Is(err, httpclient.ErrNotStreamable) && b.cfg.Transport != config.TransportHTTP
}
