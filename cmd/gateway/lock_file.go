package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/reload"
)

// updateLockPath returns the path of the file that processes lock while they update the lock file
// of any configuration; "" = there is no state directory.
func updateLockPath(state string) string {
	if state == "" {
		return ""
	}
	return filepath.Join(state, "pins.lock")
}

// readLock reads the lock file of a configuration and logs an error. If the file is unusable, the
// result approves nothing.
func readLock(source string, log *slog.Logger) *pins.Lock {
	path := pins.PathOf(source)
	if path == "" {
		return &pins.Lock{}
	}
	l, err := pins.Read(path)
	if err != nil {
		log.Error("lock file unusable: nothing in it is approved", "err", err,
			"text", hintOf(err))
	}
	return l
}

// hintOf returns the hint of a *config.Error, "" if there is none.
func hintOf(err error) string {
	if one, ok := errors.AsType[*config.Error](err); ok {
		return one.Hint
	}
	return ""
}

// withoutPins returns the backends with tools.pin: off.
func withoutPins(all []config.Backend) []config.Backend {
	all = slices.Clone(all)
	for i := range all {
		all[i].Tools.Pin = config.PinOff
	}
	return all
}

// blockWithoutLock returns a warning if there is no place for a lock file, and a backend has
// tools.pin: block.
func blockWithoutLock(l *config.Loaded) (warnings []string) {
	if pins.PathOf(l.Source) != "" {
		return nil
	}
	for _, b := range l.Config.Backends {
		if b.Enabled && b.Tools.Pin == config.PinBlock {
			return []string{"backend " + b.Name + ": tools.pin: block hides all tools, because " +
				"the configuration is not a regular file, and so has no lock file beside it"}
		}
	}
	return nil
}

// A lockKeeper keeps the lock file of a running gateway and the backends in agreement: it reads the
// file when it has changed, and adds entries for backends that have none.
type lockKeeper struct {
	backends *backends.Set
	log      *slog.Logger
	state    string      // the state directory, "" = none
	changed  chan string // capacity 1: the configuration whose lock file may have changed
	source   string      // the configuration; used only by run
	failed   string      // the last logged error
	rereads  int         // number of reads in a row that have found an empty file
}

func newLockKeeper(a *app) *lockKeeper {
	return &lockKeeper{backends: a.backends, log: a.log, state: a.Config.StateDir,
		changed: make(chan string, 1), source: a.Source}
}

// noteChange lets run read the lock file of a configuration. It does not block. Only one goroutine
// may call it.
func (k *lockKeeper) noteChange(source string) {
	select {
	case <-k.changed:
	default:
	}
	k.changed <- source
}

const (
	// lockUpdatePause is the minimum time between two attempts to add entries.
	lockUpdatePause = time.Second
	// An empty or missing file is read again before it replaces approvals, because another process
	// may be writing it: after pauses of rereadPause, up to maxRereads times.
	rereadPause = 250 * time.Millisecond
	maxRereads  = 8
)

// run works until ctx is done.
func (k *lockKeeper) run(ctx context.Context) {
	var pause <-chan time.Time // nil = entries may be added now
	var reread <-chan time.Time
	listed := true // tools were listed since the last attempt
	for {
		v := k.backends.View()
		if listed && pause == nil && reread == nil && v.Settled {
			listed = false
			if k.pinNew(v.Snapshot) {
				pause = time.After(lockUpdatePause)
			}
		}
		var settled <-chan struct{}
		if !v.Settled {
			settled = v.Changed
		}
		select {
		case <-k.backends.ToolsListed():
			listed = true
		case <-settled:
		case <-pause:
			pause = nil
		case source := <-k.changed:
			k.source, k.rereads = source, 0
			reread, listed = k.reload(), true
		case <-reread:
			reread = k.reload()
		case <-ctx.Done():
			return
		}
	}
}

// reload reads the lock file, and applies it if it has changed. If it is unusable, the approvals in
// force stay. If the result is not nil, the file must be read again when the channel fires.
func (k *lockKeeper) reload() (again <-chan time.Time) {
	path := pins.PathOf(k.source)
	if path == "" {
		return nil
	}
	before := k.backends.Lock()
	l, err := pins.Read(path)
	switch {
	case l.IsSame(before):
		if err == nil {
			k.failed = ""
		}
	case l.IsEmpty() && !before.IsEmpty() && k.rereads < maxRereads:
		k.rereads++
		return time.After(rereadPause)
	case err != nil && before.Problem == nil:
		if err.Error() != k.failed {
			k.failed = err.Error()
			k.log.Error("lock file unusable: keeping the previous approvals", "err", err,
				"text", hintOf(err))
		}
	default:
		k.failed = ""
		k.backends.SetLock(l)
		if err != nil {
			k.log.Error("lock file unusable: nothing in it is approved", "err", err,
				"text", hintOf(err))
			return nil
		}
		k.log.Info("lock file reloaded", "file", path)
	}
	return nil
}

// pinNew adds an entry for each backend that has none, if its tools.pin is warn and it has listed
// tools in this run: their first definitions count as approved. It reports whether it has tried.
func (k *lockKeeper) pinNew(v *catalog.Snapshot) (tried bool) {
	path := pins.PathOf(k.source)
	if path == "" || k.backends.Lock().Problem != nil {
		return false
	}
	found := make(map[string][]catalog.Item)
	for _, s := range k.backends.Status() {
		if s.Pins.Mode != config.PinWarn || s.Pins.Approved {
			continue
		}
		if tools, known := k.backends.ListedTools(s.Name); known && len(tools) > 0 {
			found[s.Name] = tools
		}
	}
	if len(found) == 0 {
		return false
	}
	var added []string
	l, err := pins.Update(path, updateLockPath(k.state), func(l *pins.Lock) bool {
		for name, tools := range found {
			if _, known := l.Backends[name]; known { // another gateway was faster
				continue
			}
			l.Approve(name, definitionsOf(tools), freeNames(l, exposedNames(v, name)))
			added = append(added, name)
		}
		return len(added) > 0
	})
	if err != nil {
		k.logFailure(path, err)
		return true
	}
	k.failed = ""
	k.backends.SetLock(l)
	if slices.Sort(added); len(added) > 0 {
		k.log.Info("tools approved on first use: later changes are logged",
			"backend", reload.NameList(added), "file", path)
	}
	return true
}

// logFailure logs an error of an update, unless it was the last one. A file or directory that must
// not be written is no fault: the file may be a part of an image.
func (k *lockKeeper) logFailure(path string, err error) {
	if err.Error() == k.failed {
		return
	}
	k.failed = err.Error()
	log := k.log.Warn
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		log = k.log.Info
	}
	log("cannot store the definitions of tools: changes are logged only during this run",
		"file", path, "err", err, "text", "gateway approve writes the file")
}

// definitionsOf returns the definitions of tools.
func definitionsOf(tools []catalog.Item) pins.Tools {
	all := make(pins.Tools, len(tools))
	for _, t := range tools {
		all[t.Original] = pins.New(t.Raw())
	}
	return all
}

// exposedNames returns the names under which the tools of a backend are listed.
func exposedNames(s *catalog.Snapshot, backend string) (names []string) {
	for _, e := range s.Entries(catalog.Tools) {
		if e.Backend == backend && e.Exposed != "" && !e.Item.Builtin {
			names = append(names, e.Exposed)
		}
	}
	return names
}

// freeNames returns the names that have no owner in a lock file.
func freeNames(l *pins.Lock, names []string) (free []string) {
	for _, name := range names {
		if l.Names[name] == "" {
			free = append(free, name)
		}
	}
	return free
}
