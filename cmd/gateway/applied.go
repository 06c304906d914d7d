package main

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mcpgateway/internal/config"
)

// An applied record says by which configuration a gateway runs, so that another process
// can tell what would change: there is one for each file, of the gateway that loaded it last, in
// the directory of state. It holds digests and no values.
type applied struct {
	Version int       `json:"version"`
	File    string    `json:"file"`
	PID     int       `json:"pid"`
	Birth   birth     `json:"birth,omitzero"`
	Time    time.Time `json:"time"`
	Flags   []string  `json:"flags,omitempty"` // keys that the command line has set
	config.Digest
}

const (
	appliedVersion = 1
	maxApplied     = 4 << 20 // bytes of one
	keepApplied    = 100     // of them; the ones written longest ago go
)

// appliedPath is where the record of a configuration's file is kept.
func appliedPath(state, file string) string {
	if path, err := filepath.Abs(file); err == nil {
		file = path
	}
	sum := sha256.Sum256([]byte(file))
	return filepath.Join(state, "applied", hex.EncodeToString(sum[:8])+".json")
}

// writeApplied keeps what the gateway runs by now, if there is a place for it.
func writeApplied(source string, c *config.Config, flags []string) error {
	if c.StateDir == "" || source == "" {
		return nil
	}
	file, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	text, err := json.Marshal(applied{
		appliedVersion, file, os.Getpid(), birthOf(os.Getpid()), time.Now().UTC().Truncate(time.Second), flags,
		config.NewDigest(c, rand.Text()),
	})
	if err != nil {
		return err
	}
	path := appliedPath(c.StateDir, source)
	if err := (output{path: path, force: true}).write(append(text, '\n')); err != nil {
		return err
	}
	prune(filepath.Dir(path), keepApplied)
	return nil
}

// prune removes all but the youngest files of a directory. What a gateway left half
// written ages like the others.
func prune(dir string, keep int) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= keep {
		return
	}
	age := make(map[string]time.Time, len(entries))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			age[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		return cmp.Or(age[b.Name()].Compare(age[a.Name()]), cmp.Compare(a.Name(), b.Name()))
	})
	for _, e := range entries[keep:] {
		if _, ok := age[e.Name()]; ok {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// readApplied returns the record of a file. The error is fs.ErrNotExist if there is none.
func readApplied(state, source string) (*applied, error) {
	if state == "" {
		return nil, fs.ErrNotExist
	}
	path := appliedPath(state, source)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("it is no file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxApplied+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxApplied {
		return nil, errors.New("it is too large")
	}
	return parseApplied(text)
}

func parseApplied(text []byte) (*applied, error) {
	a := new(applied)
	if err := json.Unmarshal(text, a); err != nil {
		return nil, errors.New("it is damaged")
	}
	if a.Version != appliedVersion {
		return nil, fmt.Errorf("it is of version %d, not %d", a.Version, appliedVersion)
	}
	return a, nil
}
