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
	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/config"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// legacyName is the name of the legacy generation in the configuration and in the cache.
const legacyName = "legacy"

// A catalogCache is the content of the file with a backend's last known catalog. The file is a JSON
// object. Among others, it has a member for each list that was read, in the form of the result of
// the list request, and a member for the generation if the backend is unprobeable. Gateways may
// share a file: it is written completely under another name, and then renamed. Files that are
// unused for a long time are removed; see prune.
type catalogCache struct {
	instructions string
	capabilities []byte
	unprobeable  bool // see detectedGeneration
	complete     bool // it contains every list
	raw          [catalog.NumKinds][]byte
	items        [catalog.NumKinds][]catalog.Item
}

// cacheVersion is the version of the format. Files of the preceding version, which has no
// generation, are also read.
const cacheVersion = 3

// cachePath returns a path for the backend and its program, so that a backend with the same name
// and another program does not use the file. The path is "" if there are no caches.
func (b *Backend) cachePath() string {
	if b.set.StateDir == "" {
		return ""
	}
	return filepath.Join(b.set.StateDir, b.cfg.Name+"-"+b.serverKey+".json")
}

// serverKeyOf returns a text that is the same for two backends with the same command, arguments and
// directory, the same URL, or the same embedded server.
func serverKeyOf(c *config.Backend) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", c.Command, c.Args, c.Cwd, c.URL,
		c.Embedded))
	return hex.EncodeToString(sum[:6])
}

// loadCache reads the cached catalog. A file that cannot be used is ignored; unless it is missing
// or not a regular file, this is logged. If the catalog is incomplete, or Options.IgnoreCache is
// set, only the generation is used.
func (b *Backend) loadCache() {
	path := b.cachePath()
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return // usually because there is no cache yet
	}
	if info.Size() > catalog.NumKinds*int64(b.set.MaxMessage) {
		b.log.Warn("cached catalog too large; it is ignored and will be replaced", "file", path,
			"bytes", info.Size())
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		b.log.Warn("cannot read cached catalog", "err", err)
		return
	}
	c, err := parseCache(text)
	if err != nil {
		b.log.Warn("cached catalog damaged or of another version; it is ignored and will be replaced",
			"file", path, "err", err)
		return
	}
	touchCacheFile(path, info)
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.unprobeable {
		b.detected, b.cachedUnprobeable = detectedGeneration{generation: protocol.Legacy,
			unprobeable: true},
			true
	}
	if b.set.IgnoreCache {
		return
	}
	if !c.complete {
		return // the backend ended before all lists were read
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
		return c, fmt.Errorf("it is not a JSON object")
	}
	if version != fmt.Sprint(cacheVersion) && version != fmt.Sprint(cacheVersion-1) {
		return c, fmt.Errorf("it is of version %s, not %d", cmp.Or(version, "none"), cacheVersion)
	}
	if !wire.IsObject(c.capabilities) {
		return c, fmt.Errorf("its capabilities are not an object")
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

// saveCache writes the catalog if it has changed, and otherwise records that the file is used. A
// list that was never read is not in the file. A failure is logged.
func (b *Backend) saveCache(raw [catalog.NumKinds][]byte, s serverInfo) {
	path := b.cachePath()
	d, configured := b.generation()
	unprobeable := d.unprobeable && !configured
	b.mu.Lock()
	known := b.cachedUnprobeable == unprobeable && b.listing.Instructions == s.instructions() &&
		string(b.listing.Capabilities) == string(s.Capabilities)
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
	c := catalogCache{instructions: s.instructions(), capabilities: s.Capabilities,
		unprobeable: unprobeable, raw: raw}
	if err := writeFile(path, c.encode()); err != nil {
		b.log.Warn("cannot write catalog cache", "err", err)
		return
	}
	prune(filepath.Dir(path), time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cachedUnprobeable = unprobeable
}

// encode returns the text that parseCache reads.
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

// writeFile replaces a file atomically: a reader finds either the old or the new text. Only the
// owner of the file has access to it. writeFile does not sync: a file that is empty after a power
// failure counts as damaged, and the lists are read again.
func writeFile(path string, text []byte) error {
	temp := strings.TrimSuffix(filepath.Base(path), ".json") + ".*.tmp"
	return atomicfile.Write(path, text, atomicfile.Options{Temp: temp})
}

// copyFrom copies the known state of the backend old, which has the same name, if both have the
// same serverKey. The effect is like that of the cache: if the catalog of old is incomplete, only
// the generation and the transport are copied.
func (b *Backend) copyFrom(old *Backend) {
	if b.serverKey != old.serverKey {
		return
	}
	old.mu.Lock()
	raw, listing, detection, httpSSE, cachedUnprobeable, everSettled := old.raw, old.listing,
		old.detected, old.httpSSE,
		old.cachedUnprobeable, old.everSettled
	old.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.detected, b.httpSSE, b.cachedUnprobeable = detection, httpSSE, cachedUnprobeable
	if !everSettled || !isComplete(raw) {
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
