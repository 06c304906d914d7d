package backends

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// Limits of each list of one backend; the size of a list in bytes is limited like the size of a
// message, but the page that exceeds this limit is still included. Entries beyond a limit are left
// out, with a warning in the log.
const (
	maxPages   = 1000
	maxEntries = 10000
)

// allKinds selects every kind of list.
var allKinds = [catalog.NumKinds]bool{true, true, true, true}

// A listRead is a list that is being read, page by page.
type listRead struct {
	kind        catalog.Kind
	items       []catalog.Item
	omitted     []catalog.Issue // entries that were left out
	repaired    []catalog.Issue
	suspicious  []catalog.Issue // entries that some clients may not accept
	ttl         time.Duration   // the shortest TTL of all pages
	public      bool            // all pages are marked as public
	err         error
	params      []byte // params of the request for the next page
	pages       int
	size        int
	seenCursors map[string]bool
	done        bool
}

// readLists reads lists in parallel, and publishes them. If a list cannot be read, the failure is
// logged (see countListFailure), the last listing remains, and the list is read again later. If the
// connection has ended meanwhile, only complete lists are published, and none if ctx was cancelled.
func (b *Backend) readLists(ctx context.Context, p *peer.Peer, s serverInfo,
	which [catalog.NumKinds]bool) {
	var read []*listRead
	for k := range catalog.Kind(catalog.NumKinds) {
		if which[k] {
			read = append(read, &listRead{kind: k, done: !s.lists(k),
				seenCursors: make(map[string]bool), public: s.modern})
		}
	}
	b.readPages(ctx, p, s, read)
	if ctx.Err() == context.Canceled { // the connection is over; runConn reports the reason
		b.mu.Lock()
		raw := b.raw
		b.mu.Unlock()
		b.saveCache(raw, s)
		return
	}
	now, _ := b.shared.currentPeer()
	if now != p { // the connection is over, but complete lists are stored
		read = slices.DeleteFunc(read, func(r *listRead) bool { return r.err != nil })
	}
	for _, r := range read {
		if isLegacyRefusal(r.err) {
			b.shared.markSuspect()
		}
		if r.err != nil && s.modern {
			b.shared.noteReachability(r.err)
		}
		if r.err != nil {
			r.err = fmt.Errorf("%s: %w", r.kind.ListMethod(), timeoutCause(ctx, r.err))
			if repeats, shouldLog := b.countListFailure(r.kind); shouldLog {
				b.outputLog.Warn("listing failed; will retry", "err", r.err, "records", repeats)
			}
		}
	}
	b.storeLists(read, s, now == p)
}

// readPages reads all pages of the lists. The requests for the next page of each list are sent
// together.
func (b *Backend) readPages(ctx context.Context, p *peer.Peer, s serverInfo, read []*listRead) {
	for {
		var open []*listRead
		var requests []wire.Message
		for _, r := range read {
			if !r.done {
				open = append(open, r)
				requests = append(requests, b.withClientMeta(wire.NewRequest("0",
					r.kind.ListMethod(), r.params), s, "", false))
			}
		}
		if len(open) == 0 {
			return
		}
		for i, a := range p.RoundTripAll(ctx, requests...) {
			next, err := b.addPage(open[i], s, a)
			open[i].err = err
			open[i].done = err != nil || next == nil
			if err == nil && next == nil {
				r := open[i]
				items, duplicates := catalog.RemoveDuplicates(r.kind, r.items)
				r.items = items
				b.recordIssues(r, duplicates)
				b.recordIssues(r, catalog.FindLookAlikes(r.kind, r.items))
			}
			open[i].params = append(append([]byte(`{"cursor":`), next...), '}')
		}
	}
}

// addPage adds a page and returns the cursor of the next page, nil if there is none. A limit ends
// the list, and so does a repeated cursor, because the pages would repeat without end. A server
// that does not know the method has an empty list; any other error response is an error.
func (b *Backend) addPage(r *listRead, s serverInfo, a peer.Response) (next []byte, err error) {
	if a.Err != nil {
		return nil, a.Err
	}
	if failure := a.Part(wire.PartError); failure != nil {
		if e := wire.ReadError(failure); e.Code != wire.CodeMethodNotFound {
			return nil, e
		}
		return nil, nil // the server does not have this list
	}
	result := a.OneLine().Part(wire.PartResult)
	if t := protocol.ResultType(result); s.modern && t != protocol.ResultComplete {
		return nil, fmt.Errorf("its result is %s", cmp.Or(t, "of an unknown type"))
	}
	page, err := catalog.ParsePage(r.kind, result)
	if err != nil {
		return nil, err
	}
	if r.kind == catalog.Tools {
		b.fixHeaderAnnotations(&page, s)
	}
	b.recordIssues(r, page.Issues)
	if r.pages == 0 || page.TTL < r.ttl {
		r.ttl = page.TTL
	}
	r.public = r.public && page.Public
	r.items = append(r.items, page.Items...)
	r.size += len(a.Raw())
	r.pages++
	list := r.kind.ListMethod()
	switch {
	case page.NextCursor == nil:
		return nil, nil
	case r.seenCursors[string(page.NextCursor)]:
		if string(page.NextCursor) != `""` { // which many servers send at the end
			b.outputLog.Warn("list cursor repeated; further pages ignored", "method", list)
		}
		return nil, nil
	case r.size > b.set.MaxMessage:
		b.outputLog.Warn("list larger than limits.message; rest left out", "method", list)
		return nil, nil
	case len(r.items) > maxEntries:
		b.outputLog.Warn("too many entries in the list; rest left out", "method", list,
			"max", maxEntries)
		r.items = r.items[:maxEntries]
		return nil, nil
	case r.pages == maxPages:
		b.outputLog.Warn("too many pages in the list; rest left out", "method", list,
			"max", maxPages)
		return nil, nil
	}
	r.seenCursors[string(page.NextCursor)] = true
	return page.NextCursor, nil
}

// recordIssues logs and stores issues of a list that is being read.
func (b *Backend) recordIssues(r *listRead, issues []catalog.Issue) {
	b.logIssues(r.kind, issues)
	for _, i := range issues {
		switch {
		case i.Suspicious && len(r.suspicious) < maxEntries:
			r.suspicious = append(r.suspicious, i)
		case i.Repaired && len(r.repaired) < maxEntries:
			r.repaired = append(r.repaired, i)
		case !i.Repaired && !i.Suspicious && len(r.omitted) < maxEntries:
			r.omitted = append(r.omitted, i)
		}
	}
}

// isSuspicious reports whether the filters permit a suspicious entry, and also the entry that it
// conflicts with, if there is one.
func (b *Backend) isSuspicious(k catalog.Kind, f catalog.Issue) bool {
	return b.permitsEntry(k, f.Item) && (f.ConflictsWith == "" ||
		b.permitsEntry(k, f.ConflictsWith))
}

// storeLists stores the lists that were read, and the errors of the others. The argument counts is
// passed to settle. It is false if the connection is over: then markFailed settles the backend
// later, together with the reason for the end.
func (b *Backend) storeLists(read []*listRead, s serverInfo, counts bool) {
	b.mu.Lock()
	raw, knownTools, errs := b.raw, b.items[catalog.Tools], b.listErrs
	b.mu.Unlock()
	for _, r := range read {
		errs[r.kind] = r.err
	}
	// before settle, so that the status contains the issue
	b.shared.setIssue(supervise.IssueLists, cmp.Or(errs[:]...))
	for _, r := range read {
		if r.err == nil {
			raw[r.kind] = catalog.MarshalList(r.kind, r.items)
		}
		if r.err == nil && r.kind == catalog.Tools {
			b.logChangedTools(knownTools, r.items)
		}
	}
	b.saveCache(raw, s)
	var unmatched []string
	b.settle(counts, func() (changed bool) {
		for _, r := range read {
			changed = b.setTTLLocked(r, s) || changed
			b.listErrs[r.kind] = r.err
			if r.err == nil {
				b.omitted[r.kind], b.suspicious[r.kind], b.repaired[r.kind] = r.omitted,
					r.suspicious, r.repaired
			}
			if r.err == nil && string(raw[r.kind]) != string(b.raw[r.kind]) {
				b.setItemsLocked(r.kind, r.items)
				changed = true
			}
			if r.err == nil && b.announced[r.kind] {
				b.announced[r.kind] = false
				b.listing.Announcements[r.kind]++
				changed = true
			}
		}
		changed = changed || s.instructions() != b.listing.Instructions ||
			string(s.Capabilities) != string(b.listing.Capabilities)
		b.raw = raw
		unmatched = b.updateUnmatchedLocked()
		b.listing.Instructions, b.listing.Capabilities = s.instructions(), s.Capabilities
		return changed
	})
	b.logUnmatched(unmatched)
}
