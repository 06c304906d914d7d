package containers

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	recordsDir    = "containers" // below the state directory
	recordVersion = 1
	// maxRecords bounds the records of ended gateways in the directory, which gateways may share.
	maxRecords     = 200
	maxRecord      = 64 << 10 // bytes of one record
	recordExpiry   = 30 * 24 * time.Hour
	tempFileExpiry = time.Hour // age at which a temporary file counts as abandoned
	sweepParallel  = 4
)

// Options of Records.
type Options struct {
	StateDir  string                  // directory above that of the records; "" = no records
	Owner     json.RawMessage         // identifies this process; nil = it makes no records
	HasExited func(owner []byte) bool // nil = Sweep stops no containers
	Log       *slog.Logger
}

// Records are the records of containers in the state directory.
type Records struct {
	Options
	swept chan struct{} // closed at the end of Sweep
}

// New returns Records. Prepare waits until Sweep or SkipSweep has been called.
func New(o Options) *Records { return &Records{Options: o, swept: make(chan struct{})} }

// SkipSweep is called instead of Sweep if the program is about to end.
func (r *Records) SkipSweep() { close(r.swept) }

// Sweep stops the containers of gateways that were killed. It stops none if Options.StateDir or
// Options.HasExited is not set. Backends with containers start after the sweep, because an old
// container may still have the name of a new one. all returns the current backends; env is the
// environment of the engine if the backend of a container is not one of them.
func (r *Records) Sweep(ctx context.Context, all func() []Backend, env func() []string) {
	defer close(r.swept)
	if r.StateDir == "" || r.HasExited == nil {
		return
	}
	running := make(chan struct{}, sweepParallel)
	var stopping sync.WaitGroup
	dir, err := filepath.Abs(filepath.Join(r.StateDir, recordsDir))
	if err != nil {
		return
	}
	for _, ct := range orphanedContainers(dir, r.HasExited, time.Now()) {
		if !ct.isTrusted(all(), dir) {
			r.Log.Warn("untrusted container record ignored; the container may still run",
				"backend", ct.Backend, "file", ct.record)
			continue
		}
		running <- struct{}{}
		stopping.Go(func() {
			defer func() { <-running }()
			env := env
			for _, b := range all() {
				if b.Name == ct.Backend {
					env = b.Env
				}
			}
			if err := ct.stop(ctx, env(), "1"); err != nil {
				r.Log.Warn("stopping the container of a killed gateway failed",
					"backend", ct.Backend, "err", err)
			} else {
				r.Log.Info("stopped the container of a killed gateway", "backend", ct.Backend)
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
func (ct *Container) isTrusted(all []Backend, dir string) bool {
	known := len(ct.Engine) == 1 && slices.Contains(engines, ct.Engine[0])
	own := filepath.Dir(ct.CIDFile) == dir
	if known {
		ct.Dir = ""
	}
	for _, b := range all {
		run, _, ok := b.run()
		if !ok || !slices.Equal(run.engine, ct.Engine) {
			continue
		}
		if known = true; own {
			ct.Dir = b.Cwd
		}
		file := run.cidfile
		if !filepath.IsAbs(file) {
			file = filepath.Join(b.Cwd, file)
		}
		if file, err := filepath.Abs(file); err == nil && run.cidfile != "" && file == ct.CIDFile {
			ct.Dir, own = b.Cwd, true
		}
	}
	return known && own
}

// orphanedContainers returns the containers of gateways that have ended. It removes damaged
// records, abandoned temporary files, and records of ended gateways that are too old or too many.
// Together with a record it removes the file with the id.
func orphanedContainers(dir string, hasExited func(owner []byte) bool,
	now time.Time) (orphans []*Container) {
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
		case err != nil || now.Sub(info.ModTime()) > recordExpiry || kept == maxRecords:
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
// Prepare writes.
func readContainer(path string, size int64) (*Container, error) {
	if size > maxRecord {
		return nil, errors.New("it is too large")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ct := &Container{record: path}
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
