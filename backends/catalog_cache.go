package backends

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/wire"
)

// legacyName is the era of a backend that is not asked for it, as the file has it.
const legacyName = "legacy"

// A catalogCache is the file that keeps a backend's last known catalog: a JSON object
// with a member for each list, as the result of the request for it, and its era, if
// it is costly to ask for it. Several
// gateways may share it: it is written whole, under another name, and then put
// in its place. What nobody has used for long is removed; see prune.
type catalogCache struct {
	instructions string
	capabilities []byte
	unprobeable  bool // it does not bear to be asked for its era; see verdict
	complete     bool // every list is in it
	raw          [catalog.NumKinds][]byte
	items        [catalog.NumKinds][]catalog.Item
}

// cacheVersion is that of the file's format. The one before has no era.
const cacheVersion = 3

// cachePath names the file after the backend and what it runs, so that another
// backend of the same name does not find it. It is "" if nothing is kept.
func (b *Backend) cachePath() string {
	if b.set.StateDir == "" {
		return ""
	}
	return filepath.Join(b.set.StateDir, b.cfg.Name+"-"+b.programID+".json")
}

// programID returns a text that is the same for two backends if they run the same program with
// the same arguments in the same directory, or have the same URL.
func programID(c *config.Backend) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", c.Command, c.Args, c.Cwd, c.URL, c.Embedded))
	return hex.EncodeToString(sum[:6])
}

// loadCache reads what the backend offered last. A file that cannot be used is as
// good as none.
func (b *Backend) loadCache() {
	path := b.cachePath()
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return // the usual case of it: there is none yet
	}
	if info.Size() > catalog.NumKinds*int64(b.set.MaxMessage) {
		b.log.Warn("the last known catalog is damaged; it will be written anew", "file", path, "err", "it is too large")
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		b.log.Warn("the last known catalog cannot be read", "err", err)
		return
	}
	c, err := parseCache(text)
	if err != nil {
		b.log.Warn("the last known catalog is damaged, or of another version; it will be written anew", "file", path, "err", err)
		return
	}
	touchCacheFile(path, info)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.unprobeable {
		b.detected, b.cachedUnprobeable = detected{generation: legacyGeneration, unprobeable: true}, true
	}
	if b.set.IgnoreCache {
		return
	}
	if !c.complete {
		return // the backend ended before all of its lists were read
	}
	b.raw = c.raw
	b.listing.Instructions, b.listing.Capabilities = c.instructions, c.capabilities
	for k := range catalog.Kind(catalog.NumKinds) {
		b.setItemsLocked(k, c.items[k])
	}
	b.everSettled = true
}

func parseCache(text []byte) (c catalogCache, err error) {
	version := ""
	c.capabilities = []byte("{}")
	if !wire.Members(text, func(key string, value []byte, _ int) {
		switch key {
		case "version":
			version = string(value)
		case "instructions":
			c.instructions = wire.Unquote(value)
		case "capabilities":
			c.capabilities = value
		case "era":
			c.unprobeable = wire.Unquote(value) == legacyName
		}
		for k := range catalog.Kind(catalog.NumKinds) {
			if key == k.ResultMember() {
				c.raw[k] = value
			}
		}
	}) {
		return c, fmt.Errorf("it is no JSON object")
	}
	if version != fmt.Sprint(cacheVersion) && version != fmt.Sprint(cacheVersion-1) {
		return c, fmt.Errorf("it is of version %s, not %d", cmp.Or(version, "none"), cacheVersion)
	}
	if !wire.IsObject(c.capabilities) {
		return c, fmt.Errorf("its capabilities are no object")
	}
	c.complete = isComplete(c.raw)
	for k := range catalog.Kind(catalog.NumKinds) {
		if c.raw[k] == nil {
			continue
		}
		page, err := catalog.ParsePage(k, c.raw[k])
		if err != nil {
			return c, err
		}
		c.items[k] = page.Items
	}
	return c, nil
}

// isComplete reports whether every list was read.
func isComplete(raw [catalog.NumKinds][]byte) bool {
	return !slices.ContainsFunc(raw[:], func(list []byte) bool { return list == nil })
}

// saveCache writes what the backend offers now, if that is news. A list that was never read is not in
// the file.
func (b *Backend) saveCache(raw [catalog.NumKinds][]byte, s serverInfo) {
	path := b.cachePath()
	d, pinned := b.generation()
	costly := d.unprobeable && !pinned
	b.mu.Lock()
	known := b.cachedUnprobeable == costly && b.listing.Instructions == s.instructions() && string(b.listing.Capabilities) == string(s.Capabilities)
	for k := range raw {
		known = known && string(raw[k]) == string(b.raw[k])
	}
	b.mu.Unlock()
	if path == "" {
		return
	}
	if known {
		if info, err := os.Lstat(path); err == nil {
			touchCacheFile(path, info)
		}
		return
	}
	c := catalogCache{instructions: s.instructions(), capabilities: s.Capabilities, unprobeable: costly, raw: raw}
	if err := writeFile(path, c.encode()); err != nil {
		b.log.Warn("the catalog could not be kept for the next start", "err", err)
		return
	}
	prune(filepath.Dir(path), time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cachedUnprobeable = costly
}

// encode is what parseCache reads.
func (c catalogCache) encode() []byte {
	text := fmt.Appendf(nil, `{"version":%d,"instructions":%s,"capabilities":%s`,
		cacheVersion, wire.Quote(c.instructions), cmp.Or(string(c.capabilities), "{}"))
	if c.unprobeable {
		text = fmt.Appendf(text, `,"era":%q`, legacyName)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		if c.raw[k] != nil {
			text = fmt.Appendf(text, ",%q:%s", k.ResultMember(), c.raw[k])
		}
	}
	return append(text, "}\n"...)
}

// writeFile writes a file, for its owner alone, so that whoever reads it finds the old text or
// the new. It is not synced: what a power failure leaves empty counts as damaged, and is
// listed anew.
func writeFile(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, strings.TrimSuffix(filepath.Base(path), ".json")+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// copyFrom takes over what is known of the backend that had the name before, if it is the same
// program that is run, as a file of its own would have it.
func (b *Backend) copyFrom(old *Backend) {
	if b.programID != old.programID {
		return
	}
	old.mu.Lock()
	raw, listing, found, older, kept, answered := old.raw, old.listing, old.detected, old.httpSSE, old.cachedUnprobeable, old.everSettled
	old.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.detected, b.httpSSE, b.cachedUnprobeable = found, older, kept
	if !answered || !isComplete(raw) {
		return
	}
	b.raw, b.everSettled = raw, true
	b.listing.Instructions, b.listing.Capabilities = listing.Instructions, listing.Capabilities
	for k := range catalog.Kind(catalog.NumKinds) {
		if page, err := catalog.ParsePage(k, raw[k]); err == nil {
			b.setItemsLocked(k, page.Items)
		}
	}
}
