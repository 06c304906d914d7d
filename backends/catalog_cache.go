package backends

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"mcpgateway/backends/internal/catalogcache"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/protocol"
)

// cache returns the file with the last known catalog of the backend, the zero Cache if there are no
// caches.
func (b *Backend) cache() catalogcache.Cache {
	if b.set.StateDir == "" {
		return catalogcache.Cache{}
	}
	return catalogcache.Cache{
		Path:    catalogcache.Path(b.set.StateDir, b.cfg.Name, b.serverKey),
		MaxSize: catalog.NumKinds * int64(b.set.MaxMessage),
		Log:     b.log,
	}
}

// serverKeyOf returns a text that is the same for two backends with the same command, arguments and
// directory, the same URL, or the same embedded server.
func serverKeyOf(c *config.Backend) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", c.Command, c.Args, c.Cwd, c.URL,
		c.Embedded))
	return hex.EncodeToString(sum[:6])
}

// loadCache reads the cached catalog. If the catalog is incomplete, or Options.IgnoreCache is set,
// only the generation is used.
func (b *Backend) loadCache() {
	c, ok := b.cache().Load()
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.Unprobeable {
		b.detected, b.cachedUnprobeable = detectedGeneration{generation: protocol.Legacy,
			unprobeable: true},
			true
	}
	if b.set.IgnoreCache {
		return
	}
	if !catalogcache.IsComplete(c.Raw) {
		return // the backend ended before all lists were read
	}
	b.raw = c.Raw
	b.listing.Instructions, b.listing.Capabilities = c.Instructions, c.Capabilities
	for k := range catalog.Kind(catalog.NumKinds) {
		b.setItemsLocked(k, c.Items[k])
	}
	b.everSettled = true
}

// saveCache writes the catalog if it has changed, and otherwise records that the file is used. A
// list that was never read is not in the file. A failure is logged.
func (b *Backend) saveCache(raw [catalog.NumKinds][]byte, s serverInfo) {
	d, configured := b.generation()
	unprobeable := d.unprobeable && !configured
	b.mu.Lock()
	known := b.cachedUnprobeable == unprobeable && b.listing.Instructions == s.instructions() &&
		string(b.listing.Capabilities) == string(s.Capabilities)
	for k := range raw {
		known = known && string(raw[k]) == string(b.raw[k])
	}
	b.mu.Unlock()
	cache := b.cache()
	if known {
		cache.Touch()
		return
	}
	if cache.Save(catalogcache.Content{Instructions: s.instructions(),
		Capabilities: s.Capabilities, Unprobeable: unprobeable, Raw: raw}) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cachedUnprobeable = unprobeable
	}
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
	if !everSettled || !catalogcache.IsComplete(raw) {
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
