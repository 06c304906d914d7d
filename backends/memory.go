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

// legacy is the era of a backend that is not asked for it, as the file has it.
const legacy = "legacy"

// A memory is the file that keeps a backend's last known catalog: a JSON object
// with a member for each list, as the result of the request for it, and its era, if
// it is costly to ask for it. Several
// gateways may share it: it is written whole, under another name, and then put
// in its place. What nobody has used for long is removed; see prune.
type memory struct {
	instructions string
	capabilities []byte
	costly       bool // it does not bear to be asked for its era; see verdict
	complete     bool // every list is in it
	raw          [catalog.NumKinds][]byte
	items        [catalog.NumKinds][]catalog.Item
}

// memoryVersion is that of the file's format. The one before has no era.
const memoryVersion = 3

// path names the file after the backend and what it runs, so that another
// backend of the same name does not find it. It is "" if nothing is kept.
func (b *Backend) path() string {
	if b.set.StateDir == "" {
		return ""
	}
	return filepath.Join(b.set.StateDir, b.cfg.Name+"-"+b.program+".json")
}

// programOf returns a text that is the same for two backends if they run the same program with
// the same arguments in the same directory, or have the same URL.
func programOf(c *config.Backend) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", c.Command, c.Args, c.Cwd, c.URL, c.Embedded))
	return hex.EncodeToString(sum[:6])
}

// recall reads what the backend offered last. A file that cannot be used is as
// good as none.
func (b *Backend) recall() {
	path := b.path()
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
	m, err := readMemory(text)
	if err != nil {
		b.log.Warn("the last known catalog is damaged, or of another version; it will be written anew", "file", path, "err", err)
		return
	}
	keepOwn(path, info)
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.costly {
		b.found, b.kept = verdict{era: ofSessions, costly: true}, true
	}
	if b.set.IgnoreCache {
		return
	}
	if !m.complete {
		return // the backend ended before all of its lists were read
	}
	b.raw = m.raw
	b.listing.Instructions, b.listing.Capabilities = m.instructions, m.capabilities
	for k := range catalog.Kind(catalog.NumKinds) {
		b.setItems(k, m.items[k])
	}
	b.answered = true
}

func readMemory(text []byte) (m memory, err error) {
	version := ""
	m.capabilities = []byte("{}")
	if !wire.Members(text, func(key string, value []byte, _ int) {
		switch key {
		case "version":
			version = string(value)
		case "instructions":
			m.instructions = wire.Unquote(value)
		case "capabilities":
			m.capabilities = value
		case "era":
			m.costly = wire.Unquote(value) == legacy
		}
		for k := range catalog.Kind(catalog.NumKinds) {
			if key == k.ResultMember() {
				m.raw[k] = value
			}
		}
	}) {
		return m, fmt.Errorf("it is no JSON object")
	}
	if version != fmt.Sprint(memoryVersion) && version != fmt.Sprint(memoryVersion-1) {
		return m, fmt.Errorf("it is of version %s, not %d", cmp.Or(version, "none"), memoryVersion)
	}
	if !wire.IsObject(m.capabilities) {
		return m, fmt.Errorf("its capabilities are no object")
	}
	m.complete = isComplete(m.raw)
	for k := range catalog.Kind(catalog.NumKinds) {
		if m.raw[k] == nil {
			continue
		}
		page, err := catalog.ParsePage(k, m.raw[k])
		if err != nil {
			return m, err
		}
		m.items[k] = page.Items
	}
	return m, nil
}

// isComplete reports whether every list was read.
func isComplete(raw [catalog.NumKinds][]byte) bool {
	return !slices.ContainsFunc(raw[:], func(list []byte) bool { return list == nil })
}

// remember writes what the backend offers now, if that is news. A list that was never read is not in
// the file.
func (b *Backend) remember(raw [catalog.NumKinds][]byte, s server) {
	path := b.path()
	v, pinned := b.verdict()
	costly := v.costly && !pinned
	b.mu.Lock()
	known := b.kept == costly && b.listing.Instructions == s.instructions() && string(b.listing.Capabilities) == string(s.Capabilities)
	for k := range raw {
		known = known && string(raw[k]) == string(b.raw[k])
	}
	b.mu.Unlock()
	if path == "" {
		return
	}
	if known {
		if info, err := os.Lstat(path); err == nil {
			keepOwn(path, info)
		}
		return
	}
	m := memory{instructions: s.instructions(), capabilities: s.Capabilities, costly: costly, raw: raw}
	if err := replace(path, m.text()); err != nil {
		b.log.Warn("the catalog could not be kept for the next start", "err", err)
		return
	}
	prune(filepath.Dir(path), time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = costly
}

// text is what readMemory reads.
func (m memory) text() []byte {
	text := fmt.Appendf(nil, `{"version":%d,"instructions":%s,"capabilities":%s`,
		memoryVersion, wire.Quote(m.instructions), cmp.Or(string(m.capabilities), "{}"))
	if m.costly {
		text = fmt.Appendf(text, `,"era":%q`, legacy)
	}
	for k := range catalog.Kind(catalog.NumKinds) {
		if m.raw[k] != nil {
			text = fmt.Appendf(text, ",%q:%s", k.ResultMember(), m.raw[k])
		}
	}
	return append(text, "}\n"...)
}

// replace writes a file, for its owner alone, so that whoever reads it finds the old text or
// the new. It is not synced: what a power failure leaves empty counts as damaged, and is
// listed anew.
func replace(path string, text []byte) error {
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

// learn takes over what is known of the backend that had the name before, if it is the same
// program that is run, as a file of its own would have it.
func (b *Backend) learn(old *Backend) {
	if b.program != old.program {
		return
	}
	old.mu.Lock()
	raw, listing, found, older, kept, answered := old.raw, old.listing, old.found, old.older, old.kept, old.answered
	old.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found, b.older, b.kept = found, older, kept
	if !answered || !isComplete(raw) {
		return
	}
	b.raw, b.answered = raw, true
	b.listing.Instructions, b.listing.Capabilities = listing.Instructions, listing.Capabilities
	for k := range catalog.Kind(catalog.NumKinds) {
		if page, err := catalog.ParsePage(k, raw[k]); err == nil {
			b.setItems(k, page.Items)
		}
	}
}
