// Package pins reads, compares and writes the lock file of a configuration. The lock file contains
// the definitions of the tools that a user has approved, and the backend of each exposed name. It
// is YAML and is meant to be committed, together with the configuration.
//
//	Read ─ parse.go              file → Lock, strictly; errors have a line
//	New ─ definition.go          tool as listed → Definition, canonical.go
//	Definition.Diff ─ diff.go    differences, field by field
//	Update ─ encode.go           Lock → file, under a lock between processes
//
// A definition is compared without regard to the order of members, white space, escapes in strings
// and the spelling of numbers. All members of a tool count, including _meta, because clients act
// on it. The text of the definition in the file is what is approved; only the fields of a large
// definition are stored as hashes.
package pins

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/config"
	"mcpgateway/internal/filelock"
)

// A Lock is the content of a lock file. Only the caller of Read and the function of Update may
// change it. The zero value is that of a missing file.
type Lock struct {
	// Names contains the backend of each exposed name.
	Names map[string]string
	// Backends contains the approved tools of each backend. A backend without tools has an entry
	// as well.
	Backends map[string]Tools
	// Problem is the error of Read if the file is unusable; nil = it is usable.
	Problem error

	text string // of the file; "" = it is missing or empty
}

// IsSame reports whether two locks have the same content, in the same spelling, and the same
// Problem.
func (l *Lock) IsSame(other *Lock) bool {
	return l.text == other.text && fmt.Sprint(l.Problem) == fmt.Sprint(other.Problem)
}

// IsEmpty reports whether a lock approves nothing, although it is usable.
func (l *Lock) IsEmpty() bool {
	return len(l.Backends) == 0 && len(l.Names) == 0 && l.Problem == nil
}

// Tools are the approved tools of a backend, by the backend's own name of the tool.
type Tools map[string]*Definition

const (
	version = 1
	// maxFile bounds a lock file, in bytes.
	maxFile = 32 << 20
)

// PathOf returns the path of the lock file of a configuration: beside it, with the extension .lock.
// It returns "" for a configuration that is not a file. A link at source is not followed.
func PathOf(source string) string {
	info, err := os.Stat(source)
	if source == "" || err == nil && !info.Mode().IsRegular() {
		return ""
	}
	dir, name := filepath.Split(source)
	stem := strings.TrimSuffix(name, filepath.Ext(name))
	if stem == "" || strings.EqualFold(filepath.Ext(name), ".lock") {
		stem = name
	}
	return dir + stem + ".lock"
}

// Read reads a lock file. A missing file is an empty Lock. The error is a *config.Error; the Lock
// then contains only the Problem.
func Read(path string) (*Lock, error) {
	text, err := atomicfile.ReadRecord(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &Lock{}, nil
	}
	var l *Lock
	if err != nil {
		err = unusable(path, 0, config.SystemMessage(err))
	} else if l, err = parse(path, text); err == nil {
		l.text = string(text)
		return l, nil
	}
	return &Lock{Problem: err}, err
}

// unusable returns an error about a lock file. line is 0 if the error concerns the whole file.
func unusable(path string, line int, problem string) *config.Error {
	return &config.Error{File: path, Line: line, Problem: problem,
		Hint: "restore the file, or remove it and run gateway approve"}
}

// lockWait bounds the wait for other processes that update the file.
const lockWait = 10 * time.Second

// Update reads the lock file at path, calls change, and writes the file if change returns true. It
// returns the Lock that is in the file now. exclusive is the path of a file that processes lock
// during the update; if it is "" or cannot be opened, the processes do not wait for each other. An
// unusable lock file is not written. Update blocks during input and output.
func Update(path, exclusive string, change func(*Lock) bool) (*Lock, error) {
	if exclusive != "" {
		unlock, err := filelock.Lock(exclusive, lockWait)
		if _, isPathError := errors.AsType[*fs.PathError](err); err != nil && !isPathError {
			return nil, err
		}
		if err == nil {
			defer unlock()
		}
	}
	l, err := Read(path)
	if err != nil || !change(l) {
		return l, err
	}
	text, err := l.encode(maxFile)
	if err != nil {
		return nil, err
	}
	l.text = string(text)
	return l, atomicfile.Write(path, text,
		atomicfile.Options{Sync: true, FollowLink: true, Mode: 0o644})
}

// Approve sets the tools of a backend and the exposed names that belong to it.
func (l *Lock) Approve(backend string, tools Tools, names []string) {
	if l.Backends == nil {
		l.Backends, l.Names = make(map[string]Tools), make(map[string]string)
	}
	l.Remove(backend)
	l.Backends[backend] = tools
	for _, name := range names {
		l.Names[name] = backend
	}
}

// Remove removes the entry of a backend, and its names.
func (l *Lock) Remove(backend string) {
	delete(l.Backends, backend)
	maps.DeleteFunc(l.Names, func(_, owner string) bool { return owner == backend })
}
