// Package catalogcache stores the last known catalogs of backends in files of the state directory,
// which gateways may share.
package catalogcache

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/wire"
)

// legacyName is the name of the legacy generation in the file.
const legacyName = "legacy"

// A Cache is the file with the last known catalog of one backend. The file is a JSON object. Among
// others, it has a member for each list that was read, in the form of the result of the list
// request, and a member for the generation if the backend is unprobeable. Files that are unused for
// a long time are removed; see prune. The zero Cache stores nothing.
type Cache struct {
	Path    string
	MaxSize int64        // bytes; a larger file is ignored
	Log     *slog.Logger // for failures
}

// A Content is the content of a Cache.
type Content struct {
	Instructions string
	Capabilities []byte // a JSON object
	Unprobeable  bool   // the backend is legacy, and must not be probed
	Raw          [catalog.NumKinds][]byte
	Items        [catalog.NumKinds][]catalog.Item // entries of Raw, set by Load
}

// version is the version of the format. Files of the preceding version, which has no generation,
// are also read.
const version = 3

// Path returns a path for a backend and its program, so that a backend with the same name and
// another program does not use the file. programKey has 12 hexadecimal digits.
func Path(dir, backend, programKey string) string {
	return filepath.Join(dir, backend+"-"+programKey+".json")
}

// Load reads the file. ok is false if the file cannot be used; unless it is missing or not a
// regular file, this is logged.
func (ca Cache) Load() (c Content, ok bool) {
	if ca.Path == "" {
		return c, false
	}
	info, err := os.Stat(ca.Path)
	if err != nil || !info.Mode().IsRegular() {
		return c, false // usually because there is no cache yet
	}
	if info.Size() > ca.MaxSize {
		ca.Log.Warn("cached catalog too large; it is ignored and will be replaced", "file", ca.Path,
			"bytes", info.Size())
		return c, false
	}
	text, err := os.ReadFile(ca.Path)
	if err != nil {
		ca.Log.Warn("cannot read cached catalog", "err", err)
		return c, false
	}
	c, err = parse(text)
	if err != nil {
		ca.Log.Warn("cached catalog damaged or of another version; it is ignored and will be replaced",
			"file", ca.Path, "err", err)
		return c, false
	}
	touch(ca.Path, info)
	return c, true
}

func parse(text []byte) (c Content, err error) {
	found := ""
	c.Capabilities = []byte("{}")
	if !wire.Members(text, func(key string, value []byte, _ int) {
		switch key {
		case "version":
			found = string(value)
		case "instructions":
			c.Instructions = wire.Unquote(value)
		case "capabilities":
			c.Capabilities = value
		case "era":
			c.Unprobeable = wire.Unquote(value) == legacyName
		}
		for k := range catalog.Kind(catalog.NumKinds) {
			if key == k.ResultMember() {
				c.Raw[k] = value
			}
		}
	}) {
		return c, errors.New("it is not a JSON object")
	}
	if found != fmt.Sprint(version) && found != fmt.Sprint(version-1) {
		return c, fmt.Errorf("it is of version %s, not %d", cmp.Or(found, "none"), version)
	}
	if !wire.IsObject(c.Capabilities) {
		return c, errors.New("its capabilities are not an object")
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		if c.Raw[k] == nil {
			continue
		}
		page, err := catalog.ParsePage(k, c.Raw[k])
		if err != nil {
			return c, err
		}
		c.Items[k] = page.Items
	}
	return c, nil
}

// IsComplete reports whether raw contains every list.
func IsComplete(raw [catalog.NumKinds][]byte) bool {
	return !slices.ContainsFunc(raw[:], func(list []byte) bool { return list == nil })
}

// Save replaces the file, and removes files of the directory that are too old or too many. A list
// that is nil is not in the file. Save reports whether it has written the file; a failure is
// logged.
//
// A reader finds either the old or the new text. Only the owner has access to the file. Save does
// not sync: a file that is empty after a power failure counts as damaged, and the lists are read
// again.
func (ca Cache) Save(c Content) bool {
	if ca.Path == "" {
		return false
	}
	temp := strings.TrimSuffix(filepath.Base(ca.Path), ".json") + ".*.tmp"
	if err := atomicfile.Write(ca.Path, c.encode(), atomicfile.Options{Temp: temp}); err != nil {
		ca.Log.Warn("cannot write catalog cache", "err", err)
		return false
	}
	prune(filepath.Dir(ca.Path), time.Now())
	return true
}

// Touch records that the file is used.
func (ca Cache) Touch() {
	if ca.Path == "" {
		return
	}
	if info, err := os.Lstat(ca.Path); err == nil {
		touch(ca.Path, info)
	}
}

// encode returns the text that parse reads.
func (c Content) encode() []byte {
	text := fmt.Appendf(nil, `{"version":%d,"instructions":%s,"capabilities":%s`,
		version, wire.Quote(c.Instructions), cmp.Or(string(c.Capabilities), "{}"))
	if c.Unprobeable {
		text = fmt.Appendf(text, `,"era":%q`, legacyName)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		if c.Raw[k] != nil {
			text = fmt.Appendf(text, ",%q:%s", k.ResultMember(), c.Raw[k])
		}
	}
	return append(text, "}\n"...)
}
