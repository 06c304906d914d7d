package backends

import (
	"bytes"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/protocol"
)

// shortestTTL is how long a list is kept, at least, that says that it is good for a while
// only.
const shortestTTL = 10 * time.Second

// setTTLLocked takes what a list says of how long, and for whom, it is good, and reports
// whether that is news. It is called with b.mu held. One of the session era says
// neither, and one of which something is hidden is not for everybody.
func (b *Backend) setTTLLocked(r *listRead, s serverInfo) (news bool) {
	b.expiresAt[r.kind] = time.Time{}
	if r.err != nil {
		return false
	}
	ttl, private := r.ttl, !r.public
	if !s.modern {
		ttl, private = 0, true
	}
	b.public[r.kind] = !private
	private = private || !b.filterOf(r.kind).IsZero()
	if ttl > 0 {
		b.expiresAt[r.kind] = time.Now().Add(max(ttl, shortestTTL))
	}
	l := &b.listing
	news = l.TTL[r.kind] != ttl || l.Private[r.kind] != private
	l.TTL[r.kind], l.Private[r.kind] = ttl, private
	return news
}

// nextExpiry returns what tells when the next list is good no longer, nil if none will be.
func (b *Backend) nextExpiry() <-chan time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first time.Time
	for _, t := range b.expiresAt {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// markExpired counts those lists as changed that are good no longer.
func (b *Backend) markExpired() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, t := range b.expiresAt {
		if !t.IsZero() && !time.Now().Before(t) {
			b.stale[k] = true
		}
	}
}

var headerAnnotation = []byte("x-mcp-header")

// fixHeaderAnnotations sees to tools that say, wrongly, which arguments go into headers. Over
// HTTP of the stateless era such a tool MUST be left out ("tools"); elsewhere headers
// mean nothing, and what is said of them is taken out, so that no client leaves out a tool
// that works.
func (b *Backend) fixHeaderAnnotations(page *catalog.Page, s serverInfo) {
	kept := page.Items[:0]
	for _, item := range page.Items {
		schema := item.Schema()
		flaw := ""
		if bytes.Contains(schema, headerAnnotation) {
			flaw = protocol.CheckHeaderSchema(schema)
		}
		switch {
		case flaw == "":
		case s.modern && b.cfg.URL != "":
			page.Issues = append(page.Issues, catalog.Issue{Item: item.Original, Problem: flaw})
			continue
		default:
			page.Issues = append(page.Issues, catalog.Issue{Item: item.Original, Problem: flaw, Repaired: true})
			item = item.WithSchema(protocol.StripHeaderAnnotations(schema))
		}
		kept = append(kept, item)
	}
	page.Items = kept
}

// headerSchemas returns the schemas of those tools of which arguments go into headers.
func headerSchemas(tools []catalog.Item) map[string][]byte {
	var all map[string][]byte
	for _, t := range tools {
		if !bytes.Contains(t.Raw(), headerAnnotation) {
			continue
		}
		if all == nil {
			all = make(map[string][]byte)
		}
		all[t.Original] = t.Schema()
	}
	return all
}
