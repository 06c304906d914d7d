// Package containers stops the containers of backends that are started by docker run and the like.
//
// The container engine writes the id of the container of a backend to a file. The gateway stops the
// container by this id when the backend's process has ended. A record on disk lets another gateway
// stop the container if this gateway is killed.
package containers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/wire"
)

// engineTimeout is the time that the engine has to stop and remove one container.
const engineTimeout = 10 * time.Second

// A Backend is the process of a backend, which may run a container.
type Backend struct {
	Name    string
	Command string // "" = it is no process, and runs no container
	Args    []string
	Cwd     string
	Env     func() []string // the environment of the process and of the engine
	Log     *slog.Logger
}

// A Container is a container that a backend may run. It is also the format of a record.
type Container struct {
	Version int      `json:"version"`
	Backend string   `json:"backend"`
	Engine  []string `json:"engine"` // a command line to which stop and rm are added
	Dir     string   `json:"dir,omitempty"`
	CIDFile string   `json:"cidfile"`
	Remove  bool     `json:"remove,omitempty"` // remove it after the stop
	// Options.Owner of the gateway that started it
	Owner json.RawMessage `json:"owner"`

	record string // path, "" if there is none
}

// run parses the command line of the backend. ok is false if it runs no container; why is the
// reason for which the gateway cannot stop the container, "" if it can.
func (b Backend) run() (run containerRun, why string, ok bool) {
	if b.Command == "" {
		return run, "", false
	}
	const instead = "start it with docker run -i --rm or podman run -i --rm, without a shell or compose"
	run, ok = readRun(b.Command, b.Args)
	switch {
	case runsHiddenContainer(b.Command, b.Args):
		return run,
			"it seems to run a container, which the gateway does not know and cannot stop: " +
				instead, true
	case !ok:
		return run, "", false
	case programName(run.program) == "nerdctl" && runtime.GOOS != "linux":
		return run, "nerdctl runs in a virtual machine here: the gateway cannot stop its container",
			true
	}
	if path, err := child.LookPath(run.program, b.Cwd, b.Env()); err == nil && isConfined(path) {
		return run,
			"its container engine is a snap and cannot write to the state directory: the gateway cannot stop its container", true
	}
	return run, "", true
}

// Warning returns a reason for which the container of a backend may outlive the backend, "" if
// there is none.
func (r *Records) Warning(b Backend) string {
	_, why, ok := b.run()
	if ok && why == "" && r.StateDir == "" {
		return "state is none: its container may remain if the gateway is killed; set state to a directory"
	}
	return why
}

// Prepare prepares the start of a container. It returns the container and the arguments for the
// start. The container is nil if the backend runs no container, or a container that cannot be
// stopped, and also if the state directory cannot be made or the configured file with the id
// already exists. If the backend runs a container, Prepare waits for the end of Sweep.
func (r *Records) Prepare(b Backend) (*Container, []string) {
	run, why, ok := b.run()
	if !ok || why != "" {
		return nil, b.Args
	}
	<-r.swept
	ct := &Container{Version: recordVersion, Backend: b.Name, Engine: run.engine, Dir: b.Cwd,
		Remove: run.remove, Owner: r.Owner}
	args, base := b.Args, filepath.Join(os.TempDir(), "mcp-gateway-"+rand.Text())
	if r.StateDir != "" {
		dir := filepath.Join(r.StateDir, recordsDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.Log.Warn("container cannot be stopped; it may remain when the backend ends",
				"err", err)
			return nil, b.Args
		}
		base = filepath.Join(dir, rand.Text())
	}
	switch ct.CIDFile = run.cidfile; {
	case ct.CIDFile == "":
		ct.CIDFile = base + ".cid"
		args = run.withOption(args, "--cidfile", ct.CIDFile)
	case !filepath.IsAbs(ct.CIDFile):
		ct.CIDFile = filepath.Join(b.Cwd, ct.CIDFile)
	}
	if _, err := os.Stat(ct.CIDFile); err == nil {
		return nil, b.Args // set by the user and left by an earlier run: the engine reports it
	}
	if path, err := filepath.Abs(ct.CIDFile); err == nil {
		ct.CIDFile = path
	}
	if r.StateDir != "" && r.Owner != nil {
		ct.record = base + ".json"
		text, err := json.Marshal(ct)
		if err == nil {
			err = atomicfile.Write(ct.record, append(text, '\n'),
				atomicfile.Options{Temp: filepath.Base(base) + ".*.tmp"})
		}
		if err != nil {
			b.Log.Warn("container not recorded; it may remain if the gateway is killed",
				"err", err)
			ct.record = ""
		}
	}
	return ct, args
}

// Conn returns a Conn whose Close also stops the container of b, and removes it if --rm was given.
// A failure to stop it is logged, and its record remains.
func (ct *Container) Conn(c transport.Conn, b Backend) transport.Conn {
	return &containerConn{Conn: c, stop: func(grace string) {
		if err := ct.stop(context.Background(), b.Env(), grace); err != nil {
			b.Log.Warn("stopping the container failed; it may still run", "err", err)
		}
	}}
}

// A containerConn is the Conn to a backend in a container.
type containerConn struct {
	transport.Conn
	exitedFirst atomic.Bool // the engine's process has exited by itself
	once        sync.Once
	stop        func(grace string)
}

func (c *containerConn) Read() (wire.Message, wire.ID, error) {
	m, relatedTo, err := c.Conn.Read()
	if err != nil {
		if _, exited := errors.AsType[*child.ExitError](err); exited {
			c.exitedFirst.Store(true)
		}
	}
	return m, relatedTo, err
}

// Close closes Conn, which ends the process, and then stops the container. The process forwards the
// end of stdin and SIGTERM to the container. If the process has exited by itself, the container has
// had no time to end, and gets one second; otherwise it gets no further time.
func (c *containerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		grace := "0"
		if c.exitedFirst.Load() {
			grace = "1"
		}
		c.stop(grace)
	})
	return err
}

// containerID matches the id that an engine writes into the file.
var containerID = lazy.Regexp(`^[0-9a-f]{12,64}$`)

// stop stops the container by commands to the engine, within engineTimeout, and removes the record
// and the file with the id. If there is no valid id, it only removes these files. After an error
// the files remain.
func (ct *Container) stop(ctx context.Context, env []string, grace string) error {
	text, err := readCIDFile(ct.CIDFile)
	id := strings.TrimSpace(string(text))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if containerID().MatchString(id) {
		ctx, cancel := context.WithTimeoutCause(ctx, engineTimeout,
			fmt.Errorf("container %s was not stopped within %v", id, engineTimeout))
		defer cancel()
		if err := ct.command(ctx, env, "stop", "-t", grace, id); err != nil && !ct.Remove {
			return err
		}
		if ct.Remove {
			if err := ct.command(ctx, env, "rm", "-f", id); err != nil {
				return err
			}
		}
	}
	ct.RemoveFiles()
	return nil
}

// maxCIDFile bounds the file with the id of a container, in bytes.
const maxCIDFile = 1 << 10

// readCIDFile reads the file with the id of a container. A file that is too large is an error.
// Anything but a regular file is also an error, because the read of a pipe may never end.
func readCIDFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxCIDFile:
		return nil, fmt.Errorf("%s is not the file with the id of a container", path)
	}
	return os.ReadFile(path)
}

// command runs an engine command about the container. It returns no error if the container does not
// exist or is already being removed.
func (ct *Container) command(ctx context.Context, env []string, words ...string) error {
	text, err := child.Run(ctx, child.Command{
		Path: ct.Engine[0], Args: slices.Concat(ct.Engine[1:], words), Env: env, Dir: ct.Dir,
	})
	output := strings.ToLower(text)
	if err == nil || strings.Contains(output, "no such container") ||
		strings.Contains(output, "is already in progress") {
		return nil
	}
	if line, _, _ := strings.Cut(text, "\n"); line != "" {
		return fmt.Errorf("%w: %.300s", err, line)
	}
	return err
}

// RemoveFiles removes the files of a container that is gone, or was not started. It removes the
// file with the id even if the user has configured its path, because the engine would not start
// another container while that file exists.
func (ct *Container) RemoveFiles() {
	_ = os.Remove(ct.CIDFile)
	if ct.record != "" {
		_ = os.Remove(ct.record)
	}
}
