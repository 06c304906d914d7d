package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"mcpgateway/backends"
	"mcpgateway/catalog"
	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/reload"
)

// A nameRecord records the backend of each exposed name, so that the next run can report names that
// belong to another backend. Each configuration file has one record, in the state directory.
type nameRecord struct {
	Version int    `json:"version"`
	File    string `json:"file"`
	// Names contains the assignments of each list, by the name of the list in MCP results.
	Names map[string]map[string]catalog.Assignment `json:"names"`
}

const (
	nameRecordVersion = 1
	maxNameRecord     = 16 << 20 // bytes of a record; catalog limits its content
	keptNameRecords   = 100      // records; the oldest are removed
)

// nameRecordPath returns the path of the record of a configuration file. It returns "" if there is
// no state directory or no file, or if the file exists and is not regular.
func nameRecordPath(state, source string) string {
	if state == "" || source == "" || !reload.IsRegularOrMissing(source) {
		return ""
	}
	return reload.RecordPath(state, "names", source)
}

// readNameRecord returns the record at a path, which is empty if there is no file. It returns an
// error if the file cannot be read, is not regular, or is not a record of this version.
func readNameRecord(path string) (all catalog.Assignments, err error) {
	if path == "" {
		return all, nil
	}
	text, err := atomicfile.ReadRecord(path, maxNameRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	var r nameRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return all, errors.New("it is damaged")
	}
	if r.Version != nameRecordVersion {
		return all, fmt.Errorf("it has version %d; this gateway reads version %d",
			r.Version, nameRecordVersion)
	}
	for k := range all {
		all[k] = r.Names[catalog.Kind(k).ResultMember()]
	}
	return all, nil
}

// encodeNameRecord returns the text of a record.
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

// loadNameRecord reads the record of the last run. It logs a record that cannot be read, which then
// counts as empty.
func loadNameRecord(state, source string, log *slog.Logger) catalog.Assignments {
	path := nameRecordPath(state, source)
	all, err := readNameRecord(path)
	if err != nil {
		log.Warn("cannot read which backend had each name in the last run: changes not reported",
			"file", path, "err", err)
	}
	return all
}

// nameRecordPause is the minimum time between two attempts to write the record.
const nameRecordPause = time.Second

// A nameRecorder writes the record of names when the names have changed.
type nameRecorder struct {
	backends        *backends.Set
	log             *slog.Logger
	path            string // of the record, "" = none
	source          string // path of the configuration file
	seen            *catalog.Snapshot
	written, failed string // text of the record, and the last logged error
}

// run keeps the record up to date until ctx is done, and then updates it once more. It replaces the
// record of the last run when the lists are settled, because the differences are logged by then.
func (k *nameRecorder) run(ctx context.Context) {
	if k.path == "" {
		return
	}
	for last := false; !last; {
		last = ctx.Err() != nil
		v := k.backends.View()
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

// update writes the record if names have changed, and logs a failure. It reports whether v has a
// new settled snapshot.
func (k *nameRecorder) update(v *catalog.View) bool {
	if !v.Settled || v.Snapshot == k.seen {
		return false
	}
	k.seen = v.Snapshot
	text, err := encodeNameRecord(k.source, v.Assignments())
	if err == nil && string(text) != k.written {
		if err = atomicfile.WriteRecord(k.path, text, keptNameRecords); err == nil {
			k.written = string(text)
		}
	}
	if err != nil && err.Error() != k.failed {
		k.failed = err.Error()
		k.log.Warn("cannot store which backend has each name: changes not reported in the next run",
			"file", k.path, "err", err)
	}
	return true
}

// maxTransfers bounds the number of transfers in transferLines.
const maxTransfers = 20

// transferLines returns lines for the user about names whose backend differs from the last run; nil
// = there are no such names.
func transferLines(mask *logging.Mask, moves []catalog.Move) (lines []string) {
	all := catalog.Transfers(moves)
	if len(all) == 0 {
		return nil
	}
	for _, t := range all[:min(len(all), maxTransfers)] {
		line := fmt.Sprintf("%s %s: belongs to %s, and belonged to %s in the last run",
			t.Kind, reload.NameList(t.Names), t.To, t.From)
		lines = append(lines, maskedName(mask, line))
	}
	if more := len(all) - maxTransfers; more > 0 {
		lines = append(lines,
			fmt.Sprintf("%d more groups of names belong to another backend", more))
	}
	return append(lines, "Permissions that clients have for such a name now apply "+
		"to another server. If you do not want that, change the order of the backends or set "+
		"catalog.prefix to always. The next gateway serve logs these names once.")
}

// approvedOwnerLines returns lines for the user about names whose backend differs from the approved
// one; nil = there are no such names.
func approvedOwnerLines(mask *logging.Mask, moves []catalog.Move) (lines []string) {
	all := catalog.Transfers(moves)
	for _, t := range all[:min(len(all), maxTransfers)] {
		line := fmt.Sprintf("%s %s: belongs to %s, and is approved for %s; "+
			"gateway approve %s shows and accepts changes", t.Kind, reload.NameList(t.Names), t.To,
			t.From, t.To)
		lines = append(lines, maskedName(mask, line))
	}
	if more := len(all) - maxTransfers; more > 0 {
		lines = append(lines,
			fmt.Sprintf("%d more groups of names are approved for another backend", more))
	}
	return lines
}
