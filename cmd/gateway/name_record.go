package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/atomicfile"
)

// A nameRecord says which backend had each name when a gateway ran last, so that the next run can
// tell which names mean something else. There is one for each configuration file, in the state
// directory.
type nameRecord struct {
	Version int                                      `json:"version"`
	File    string                                   `json:"file"`
	Names   map[string]map[string]catalog.Assignment `json:"names"` // by the lists' names in MCP
}

const (
	nameRecordVersion = 1
	maxNameRecord     = 16 << 20 // bytes of one; catalog bounds what is in it, before it is JSON
	keptNameRecords   = 100      // of them; the ones written longest ago go
)

// nameRecordPath is where the record of a configuration file is kept; "" if none is.
func nameRecordPath(state, source string) string {
	if state == "" || source == "" || !isRegular(source) {
		return ""
	}
	if path, err := filepath.Abs(source); err == nil {
		source = path
	}
	sum := sha256.Sum256([]byte(source))
	return filepath.Join(state, "names", hex.EncodeToString(sum[:8])+".json")
}

// readNameRecord returns the record at a path. There is nothing in it if there is no file.
func readNameRecord(path string) (catalog.Assignments, error) {
	if path == "" {
		return catalog.Assignments{}, nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return catalog.Assignments{}, nil
	case err != nil:
		return catalog.Assignments{}, err
	case !info.Mode().IsRegular():
		return catalog.Assignments{}, errors.New("it is no file")
	}
	f, err := os.Open(path)
	if err != nil {
		return catalog.Assignments{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxNameRecord+1))
	if err != nil {
		return catalog.Assignments{}, err
	}
	return parseNameRecord(text)
}

func parseNameRecord(text []byte) (all catalog.Assignments, err error) {
	if len(text) > maxNameRecord {
		return all, errors.New("it is too large")
	}
	var r nameRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return all, errors.New("it is damaged")
	}
	if r.Version != nameRecordVersion {
		return all, fmt.Errorf("it is of version %d, not %d", r.Version, nameRecordVersion)
	}
	for k := range all {
		all[k] = r.Names[catalog.Kind(k).ResultMember()]
	}
	return all, nil
}

// encodeNameRecord is what parseNameRecord reads.
func encodeNameRecord(source string, all catalog.Assignments) ([]byte, error) {
	file, err := filepath.Abs(source)
	if err != nil {
		return nil, err
	}
	r := nameRecord{nameRecordVersion, file, make(map[string]map[string]catalog.Assignment)}
	for k := range all {
		r.Names[catalog.Kind(k).ResultMember()] = all[k]
	}
	text, err := json.Marshal(r)
	return append(text, '\n'), err
}

// loadNameRecord reads the record of the last run.
func (a *app) loadNameRecord() {
	path := nameRecordPath(a.Config.StateDir, a.Source)
	var err error
	if a.previousNames, err = readNameRecord(path); err != nil {
		a.log.Warn("it is not known which backend had which name in the last run", "file", path, "err", err)
	}
}

// nameRecordPause is how long the record is not written after it was, or could not be.
const nameRecordPause = time.Second

// keepNameRecord keeps the record up to date until ctx is done. The names of the last run are
// replaced when lists can go out, and what differs is logged by then.
func (a *app) keepNameRecord(ctx context.Context) {
	k := nameRecorder{app: a, path: nameRecordPath(a.Config.StateDir, a.Source)}
	if k.path == "" {
		return
	}
	for over := false; !over; {
		over = ctx.Err() != nil // then once more
		v := a.backends.View()
		if k.update(v) {
			select {
			case <-time.After(nameRecordPause):
			case <-ctx.Done():
			}
		}
		select {
		case <-v.Changed:
		case <-ctx.Done():
		}
	}
}

// A nameRecorder writes the record of names when it has changed.
type nameRecorder struct {
	*app
	path            string
	seen            *catalog.Snapshot
	written, failed string // the text, and the last error that was logged
}

// update writes what has changed. It reports whether there was anything new to look at.
func (k *nameRecorder) update(v *catalog.View) bool {
	if !v.Settled || v.Snapshot == k.seen {
		return false
	}
	k.seen = v.Snapshot
	text, err := encodeNameRecord(k.Source, v.Assignments())
	if err == nil && string(text) != k.written {
		if err = atomicfile.Write(k.path, text, atomicfile.Options{Sync: true, FollowLink: true}); err == nil {
			k.written = string(text)
			atomicfile.KeepNewest(filepath.Dir(k.path), keptNameRecords)
		}
	}
	if err != nil && err.Error() != k.failed {
		k.failed = err.Error()
		k.log.Warn("the next run will not know which backend has which name now", "err", err)
	}
	return true
}

// maxTransfers bounds the lines of transferLines about names.
const maxTransfers = 20

// transferLines says which names belong to another backend than in the last run, and what to do.
func (a *app) transferLines(moves []catalog.Move) (lines []string) {
	all := catalog.Transfers(moves)
	if len(all) == 0 {
		return nil
	}
	for _, t := range all[:min(len(all), maxTransfers)] {
		lines = append(lines, printable(a.mask.String(fmt.Sprintf("%s %s: belongs to %s, and belonged to %s in the last run",
			t.Kind, nameList(t.Names), t.To, t.From))))
	}
	if more := len(all) - maxTransfers; more > 0 {
		lines = append(lines, fmt.Sprintf("names of %d more backends belong to another backend", more))
	}
	return append(lines, "What clients permit under such a name applies to another server now. If that is not wanted, change the "+
		"order of the backends or set catalog.prefix to always. The next gateway serve logs it and then takes it as known.")
}
