package backends

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpgateway/internal/lazy"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/wire"
)

// The engine writes the id of each container that a backend runs into a file. The gateway stops
// the container by this id when the backend's process has ended. A record beside the file lets
// another gateway do so if this one is killed.
const (
	containersDir = "containers" // below the state directory
	recordVersion = 1
	// maxContainerRecords bounds the records in the directory, which gateways may share.
	maxContainerRecords = 200
	maxContainerRecord  = 64 << 10 // bytes of one record
	recordExpiry        = 30 * 24 * time.Hour
	// engineTimeout is how long the engine has to stop and remove one container.
	engineTimeout = 10 * time.Second
	sweepParallel = 4
)

// A container describes a container that a backend may run. It is also the format of a record.
type container struct {
	Version int      `json:"version"`
	Backend string   `json:"backend"`
	Engine  []string `json:"engine"` // a command line to which stop and rm are added
	Dir     string   `json:"dir,omitempty"`
	CIDFile string   `json:"cidfile"`
	Remove  bool     `json:"remove,omitempty"` // after the stop
	// Options.ProcessID of the gateway that started it
	Owner json.RawMessage `json:"owner"`

	record string // path, "" if there is none
}

// A containerConn is the Conn to a backend in a container. Close also stops the container.
type containerConn struct {
	transport.Conn
	exitedFirst atomic.Bool // the engine's process has exited by itself
	once        sync.Once
	stop        func(grace string)
}

func (c *containerConn) Read() (wire.Message, wire.ID, error) {
	m, relatedTo, err := c.Conn.Read()
	if err != nil && isA[*child.ExitError](err) {
		c.exitedFirst.Store(true)
	}
	return m, relatedTo, err
}

// Close ends the process as Conn does. The process forwards the end of stdin and SIGTERM to the
// container. If the process exited first, the container has had no time to end, and gets a
// second.
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

// containerRun parses the command line of the backend. ok is false if it runs no container; why
// is the reason for which the gateway cannot stop the container, "" if it can.
func (b *Backend) containerRun() (run containerRun, why string, ok bool) {
	c := b.cfg
	if c.Command == "" {
		return run, "", false
	}
	const instead = "start it with docker run -i --rm or podman run -i --rm, without a shell or compose"
	run, ok = readRun(c.Command, c.Args)
	switch {
	case runsHiddenContainer(c.Command, c.Args):
		return run,
			"it seems to run a container, which the gateway does not know and cannot stop: " +
				instead, true
	case !ok:
		return run, "", false
	case programName(run.program) == "nerdctl" && runtime.GOOS != "linux":
		return run, "nerdctl runs in a virtual machine here: the gateway cannot stop its container",
			true
	}
	if path, err := child.LookPath(run.program, c.Cwd, b.env()); err == nil && isConfined(path) {
		return run,
			"its container engine is a snap and cannot write to the state directory: the gateway cannot stop its container", true
	}
	return run, "", true
}

// containerWarning returns why the backend's container may outlive it, "" if it does not.
func (b *Backend) containerWarning() string {
	_, why, ok := b.containerRun()
	if ok && why == "" && b.set.StateDir == "" {
		return "state is none: its container stays if the gateway is killed; set state to a directory"
	}
	return why
}

// prepareContainer prepares the start of a container and returns the arguments to start it
// with. The container is nil if the backend runs none, or one that cannot be stopped.
func (b *Backend) prepareContainer() (*container, []string) {
	c := b.cfg
	run, why, ok := b.containerRun()
	if !ok || why != "" {
		return nil, c.Args
	}
	<-b.set.containersSwept
	ct := &container{Version: recordVersion, Backend: c.Name, Engine: run.engine, Dir: c.Cwd,
		Remove: run.remove, Owner: b.set.ProcessID}
	args, base := c.Args, filepath.Join(os.TempDir(), "mcp-gateway-"+rand.Text())
	if b.set.StateDir != "" {
		dir := filepath.Join(b.set.StateDir, containersDir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			b.log.Warn(
				"the container of this backend cannot be recorded, and stays when the backend ends",
				"err", err)
			return nil, c.Args
		}
		base = filepath.Join(dir, rand.Text())
	}
	switch ct.CIDFile = run.cidfile; {
	case ct.CIDFile == "":
		ct.CIDFile = base + ".cid"
		args = run.withOption(args, "--cidfile", ct.CIDFile)
	case !filepath.IsAbs(ct.CIDFile):
		ct.CIDFile = filepath.Join(c.Cwd, ct.CIDFile)
	}
	if _, err := os.Stat(ct.CIDFile); err == nil {
		return nil, c.Args // set by the user and left by an earlier run: the engine reports it
	}
	if path, err := filepath.Abs(ct.CIDFile); err == nil {
		ct.CIDFile = path
	}
	if b.set.StateDir != "" && b.set.ProcessID != nil {
		ct.record = base + ".json"
		text, err := json.Marshal(ct)
		if err == nil {
			err = writeFile(ct.record, append(text, '\n'))
		}
		if err != nil {
			b.log.Warn(
				"the container of this backend cannot be recorded, and stays if the gateway is killed",
				"err", err)
			ct.record = ""
		}
	}
	return ct, args
}

// stopAndLog stops the container, and removes it if --rm was given. After a failure the record
// remains. grace is in seconds, from SIGTERM to SIGKILL.
func (ct *container) stopAndLog(b *Backend, grace string) {
	err := ct.stop(context.Background(), b.env(), grace)
	if err != nil {
		b.log.Warn(
			"the container of this backend cannot be stopped; the next start of the gateway tries it again",
			"err", err)
	}
}

// containerID matches the id that an engine writes into the file.
var containerID = lazy.Regexp(`^[0-9a-f]{12,64}$`)

// stop has the engine stop the container, within engineTimeout, and removes the record.
func (ct *container) stop(ctx context.Context, env []string, grace string) error {
	text, err := readCIDFile(ct.CIDFile)
	id := strings.TrimSpace(string(text))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if containerID().MatchString(id) {
		ctx, cancel := context.WithTimeoutCause(ctx, engineTimeout,
			fmt.Errorf("it did not stop container %s within %v", id, engineTimeout))
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
	ct.removeFiles()
	return nil
}

// maxCIDFile bounds the file with the id of a container, in bytes.
const maxCIDFile = 1 << 10

// readCIDFile reads the file with the id of a container. Anything but a regular file is an
// error, because the read of a pipe may never end.
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

// command runs an engine command about the container. A container that does not exist is not an
// error.
func (ct *container) command(ctx context.Context, env []string, words ...string) error {
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

// removeFiles removes the files of a container that is gone, or was not started. It also
// removes a file that the user named, because the engine would not start another container with
// it.
func (ct *container) removeFiles() {
	_ = os.Remove(ct.CIDFile)
	if ct.record != "" {
		_ = os.Remove(ct.record)
	}
}

// sweepContainers stops the containers of gateways that were killed. Backends with containers
// start after it, because the name of a container may still be taken.
func (s *Set) sweepContainers(ctx context.Context) {
	defer close(s.containersSwept)
	if s.StateDir == "" || s.HasExited == nil {
		return
	}
	running := make(chan struct{}, sweepParallel)
	var stopping sync.WaitGroup
	dir, err := filepath.Abs(filepath.Join(s.StateDir, containersDir))
	if err != nil {
		return
	}
	for _, ct := range orphanedContainers(dir, s.HasExited, time.Now()) {
		if !ct.isTrusted(s.current().all, dir) {
			s.Log.Warn(
				"a record of a container is not used: no backend has its engine and file; the container may still run",
				"backend", ct.Backend, "file", ct.record)
			continue
		}
		running <- struct{}{}
		stopping.Go(func() {
			defer func() { <-running }()
			env := childEnv(nil, s.ChildEnv, nil)
			for _, b := range s.current().all {
				if b.cfg.Name == ct.Backend {
					env = b.env()
				}
			}
			if err := ct.stop(ctx, env, "1"); err != nil {
				s.Log.Warn("a container that a killed gateway has left cannot be stopped",
					"backend", ct.Backend, "err", err)
			} else {
				s.Log.Info("a container that a killed gateway has left is stopped",
					"backend", ct.Backend)
			}
		})
	}
	stopping.Wait()
}

// isTrusted reports whether a record may be used: it comes from a directory that others may
// have written to, its engine is run, and its file is removed. The engine must be that of a
// backend, or a name that is looked up in PATH; the file must be in dir or that of the backend.
func (ct *container) isTrusted(all []*Backend, dir string) bool {
	known := len(ct.Engine) == 1 && slices.Contains(engines, ct.Engine[0])
	own := filepath.Dir(ct.CIDFile) == dir
	if known {
		ct.Dir = ""
	}
	for _, b := range all {
		run, _, ok := b.containerRun()
		if !ok || !slices.Equal(run.engine, ct.Engine) {
			continue
		}
		if known = true; own {
			ct.Dir = b.cfg.Cwd
		}
		file := run.cidfile
		if !filepath.IsAbs(file) {
			file = filepath.Join(b.cfg.Cwd, file)
		}
		if file, err := filepath.Abs(file); err == nil && run.cidfile != "" && file == ct.CIDFile {
			ct.Dir, own = b.cfg.Cwd, true
		}
	}
	return known && own
}

// orphanedContainers returns the containers of gateways that have ended. It removes records
// that are too old or too many.
func orphanedContainers(dir string, hasExited func(owner []byte) bool,
	now time.Time) (orphans []*container) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	kept := 0
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if filepath.Ext(path) != ".json" {
			if filepath.Ext(path) == ".tmp" && now.Sub(info.ModTime()) > tempFileExpiry {
				_ = os.Remove(path)
			}
			continue
		}
		ct, err := readContainer(path, info.Size())
		switch {
		case err == nil && !hasExited(ct.Owner):
		case err != nil || now.Sub(info.ModTime()) > recordExpiry || kept == maxContainerRecords:
			_ = os.Remove(path)
			_ = os.Remove(strings.TrimSuffix(path, ".json") + ".cid")
		default:
			kept++
			orphans = append(orphans, ct)
		}
	}
	return orphans
}

// readContainer reads a record. Its command line is run, so it must be one that
// prepareContainer can have written.
func readContainer(path string, size int64) (*container, error) {
	if size > maxContainerRecord {
		return nil, errors.New("it is too large")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ct := &container{record: path}
	if err := json.Unmarshal(text, ct); err != nil {
		return nil, err
	}
	if ct.Version != recordVersion || len(ct.Engine) == 0 || ct.CIDFile == "" {
		return nil, errors.New("it is damaged")
	}
	if run, ok := readRun(ct.Engine[0], append(slices.Clone(ct.Engine[1:]), "run")); !ok ||
		len(run.engine) != len(ct.Engine) {
		return nil, errors.New("it does not name an engine")
	}
	return ct, nil
}
