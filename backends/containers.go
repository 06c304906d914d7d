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

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/transport/child"
	"mcpgateway/internal/wire"
)

// The container engine writes the id of the container of a backend to a file. The gateway stops the
// container by this id when the backend's process has ended. A record on disk lets another gateway
// stop the container if this gateway is killed.
const (
	containersDir = "containers" // below the state directory
	recordVersion = 1
	// maxContainerRecords bounds the records of ended gateways in the directory, which gateways may
	// share.
	maxContainerRecords = 200
	maxContainerRecord  = 64 << 10 // bytes of one record
	recordExpiry        = 30 * 24 * time.Hour
	tempFileExpiry      = time.Hour // age at which a temporary file counts as abandoned
	// engineTimeout is the time that the engine has to stop and remove one container.
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
	Remove  bool     `json:"remove,omitempty"` // remove it after the stop
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

// containerWarning returns a reason for which the backend's container may outlive the backend, ""
// if there is none.
func (b *Backend) containerWarning() string {
	_, why, ok := b.containerRun()
	if ok && why == "" && b.set.StateDir == "" {
		return "state is none: its container may remain if the gateway is killed; set state to a directory"
	}
	return why
}

// prepareContainer prepares the start of a container. It returns the container and the arguments
// for the start. The container is nil if the backend runs no container, or a container that cannot
// be stopped, and also if the state directory cannot be made or the configured file with the id
// already exists. prepareContainer waits for the end of sweepContainers.
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
				"container cannot be stopped; it may remain when the backend ends",
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
			err = atomicfile.Write(ct.record, append(text, '\n'),
				atomicfile.Options{Temp: filepath.Base(base) + ".*.tmp"})
		}
		if err != nil {
			b.log.Warn(
				"container not recorded; it may remain if the gateway is killed",
				"err", err)
			ct.record = ""
		}
	}
	return ct, args
}

// stopAndLog stops the container, and removes it if --rm was given. A failure is logged, and the
// record remains. grace is the time from SIGTERM to SIGKILL in seconds.
func (ct *container) stopAndLog(b *Backend, grace string) {
	err := ct.stop(context.Background(), b.env(), grace)
	if err != nil {
		b.log.Warn(
			"stopping the container failed; it may still run",
			"err", err)
	}
}

// containerID matches the id that an engine writes into the file.
var containerID = lazy.Regexp(`^[0-9a-f]{12,64}$`)

// stop stops the container by commands to the engine, within engineTimeout, and removes the record
// and the file with the id. If there is no valid id, it only removes these files. After an error
// the files remain.
func (ct *container) stop(ctx context.Context, env []string, grace string) error {
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
	ct.removeFiles()
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

// removeFiles removes the files of a container that is gone, or was not started. It removes the
// file with the id even if the user has configured its path, because the engine would not start
// another container while that file exists.
func (ct *container) removeFiles() {
	_ = os.Remove(ct.CIDFile)
	if ct.record != "" {
		_ = os.Remove(ct.record)
	}
}

// sweepContainers stops the containers of gateways that were killed. It stops none if
// Options.StateDir or Options.HasExited is not set. Backends with containers start after the sweep,
// because an old container may still have the name of a new one.
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
				"untrusted container record ignored; the container may still run",
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
				s.Log.Warn("stopping the container of a killed gateway failed",
					"backend", ct.Backend, "err", err)
			} else {
				s.Log.Info("stopped the container of a killed gateway",
					"backend", ct.Backend)
			}
		})
	}
	stopping.Wait()
}

// isTrusted reports whether a record may be used. Other users may have written to the directory of
// the records, and the use of a record runs its engine and removes its file. Therefore the engine
// must be the engine of a backend, or a known name that is looked up in PATH; the file must be in
// dir, or be the configured file of a backend with this engine. If the record may be used,
// isTrusted replaces ct.Dir by the directory of such a backend, or by "" if there is none.
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

// orphanedContainers returns the containers of gateways that have ended. It removes damaged
// records, abandoned temporary files, and records of ended gateways that are too old or too many.
// Together with a record it removes the file with the id.
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

// readContainer reads a record. The command line in it will be run, so it must have the form that
// prepareContainer writes.
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
