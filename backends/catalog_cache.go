package backends

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"mcpgateway/backends/internal/catalogcache"
	"mcpgateway/catalog"
	"mcpgateway/internal/config"
)

// serverKeyOf returns a text that is the same for two backends with the same command, arguments and
// directory, the same URL, or the same embedded server.
func serverKeyOf(c *config.Backend) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", c.Command, c.Args, c.Cwd, c.URL,
		c.Embedded))
	return hex.EncodeToString(sum[:6])
}

// A knownCatalog connects the lists and the detection of a backend with the cache file, which has
// both from earlier runs of the gateway.
type knownCatalog struct {
	serverKey string             // identifies the program or URL; see serverKeyOf
	file      catalogcache.Cache // the zero Cache if there are no caches
	lists     *lists
	detection *detection
}

// newKnownCatalog returns the knownCatalog of a backend. An instance has no cache file.
func newKnownCatalog(b *Backend, d *detection) knownCatalog {
	kc := knownCatalog{serverKey: serverKeyOf(&b.cfg), lists: b.lists, detection: d}
	if b.set.StateDir != "" && b.instances.owner == nil {
		kc.file = catalogcache.Cache{
			Path:    catalogcache.Path(b.set.StateDir, b.cfg.Name, kc.serverKey),
			MaxSize: catalog.NumKinds * int64(b.set.MaxMessage),
			Log:     b.log,
		}
	}
	return kc
}

// load reads the cache file. If its catalog is incomplete, because the backend ended before all
// lists were read, or if generationOnly is set, only the generation is used.
func (kc knownCatalog) load(generationOnly bool) {
	c, ok := kc.file.Load()
	if !ok {
		return
	}
	if c.Unprobeable {
		kc.detection.loadUnprobeable()
	}
	if !generationOnly && catalogcache.IsComplete(c.Raw) {
		kc.lists.load(&c)
	}
}

// save writes lists to the file if anything has changed, and otherwise records that the file is
// used. A list that was never read is not in the file. A failure is logged.
func (kc knownCatalog) save(raw [catalog.NumKinds][]byte, s serverInfo) {
	unprobeable, cached := kc.detection.unprobeable()
	c := catalogcache.Content{Instructions: s.instructions(), Capabilities: s.Capabilities,
		Unprobeable: unprobeable, Raw: raw}
	if cached == unprobeable && kc.lists.matches(&c) {
		kc.file.Touch()
	} else if kc.file.Save(c) {
		kc.detection.setCachedUnprobeable(unprobeable)
	}
}

// copyFrom copies what is known of the same server behind a backend that is being replaced. The
// effect is like that of load: if the catalog is incomplete, only the generation and the transport
// are copied.
func (kc knownCatalog) copyFrom(old knownCatalog) {
	kc.detection.copyFrom(old.detection)
	if c, known := old.lists.content(); known && catalogcache.IsComplete(c.Raw) {
		kc.lists.load(&c)
	}
}
