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
	raw         []byte          // the complete list before filtering (MarshalList)
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

// A listReader reads the lists of a backend over its shared connection, stores them, and logs what
// is wrong with them. One goroutine at a time uses it.
type listReader struct {
	b        *Backend
	failures [catalog.NumKinds]listFailures
	logged   map[catalog.Issue]bool // issues that were logged
	// the backend's own name of a tool → hash of its definition as last listed
	toolHashes map[string]string
}

// read reads lists in parallel, and publishes them. If a list cannot be read, the failure is logged
// (see countFailure), the last listing remains, and the list is read again later. If the connection
// has ended meanwhile, only complete lists are published, and none if ctx was cancelled.
func (lr *listReader) read(ctx context.Context, l *link, which [catalog.NumKinds]bool) {
	b, s := lr.b, l.info()
	var read []*listRead
	for k := range catalog.Kind(catalog.NumKinds) {
		if which[k] {
			read = append(read, &listRead{kind: k, done: !s.lists(k),
				seenCursors: make(map[string]bool), public: s.modern})
		}
	}
	lr.readPages(ctx, l, read)
	if ctx.Err() == context.Canceled { // the connection is over; runConn reports the reason
		b.known.save(b.lists.raw(), s)
		return
	}
	current := b.shared.current() == l
	if !current { // the connection is over, but complete lists are stored
		read = slices.DeleteFunc(read, func(r *listRead) bool { return r.err != nil })
	}
	for _, r := range read {
		if r.err == nil {
			continue
		}
		if isLegacyRefusal(r.err) {
			l.markSuspect()
		}
		if s.modern {
			l.noteReachability(r.err)
		}
		r.err = fmt.Errorf("%s: %w", r.kind.ListMethod(), timeoutCause(ctx, r.err))
		if repeats, shouldLog := lr.countFailure(r.kind); shouldLog {
			b.outputLog.Warn("listing failed; will retry", "err", r.err, "records", repeats)
		}
	}
	lr.store(read, s, current)
}

// readPages reads all pages of the lists. The requests for the next page of each list are sent
// together.
func (lr *listReader) readPages(ctx context.Context, l *link, read []*listRead) {
	s := l.info()
	for {
		var open []*listRead
		var requests []wire.Message
		for _, r := range read {
			if !r.done {
				open = append(open, r)
				requests = append(requests, l.withClientMeta(wire.NewRequest("0",
					r.kind.ListMethod(), r.params), "", false))
			}
		}
		if len(open) == 0 {
			return
		}
		for i, a := range l.peer.RoundTripAll(ctx, requests...) {
			r := open[i]
			var next []byte
			next, r.err = lr.addPage(r, s, a)
			r.done = next == nil
			if r.err == nil && r.done {
				var duplicates []catalog.Issue
				r.items, duplicates = catalog.RemoveDuplicates(r.kind, r.items)
				lr.recordIssues(r, duplicates)
				lr.recordIssues(r, catalog.FindLookAlikes(r.kind, r.items))
			}
			r.params = append(append([]byte(`{"cursor":`), next...), '}')
		}
	}
}

// addPage adds a page and returns the cursor of the next page, nil if there is none. A limit ends
// the list, and so does a repeated cursor, because the pages would repeat without end. A server
// that does not know the method has an empty list; any other error response is an error.
func (lr *listReader) addPage(r *listRead, s serverInfo, a peer.Response) (next []byte, err error) {
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
		lr.fixHeaderAnnotations(&page, s)
	}
	lr.recordIssues(r, page.Issues)
	if r.pages == 0 || page.TTL < r.ttl {
		r.ttl = page.TTL
	}
	r.public = r.public && page.Public
	r.items = append(r.items, page.Items...)
	r.size += len(a.Raw())
	r.pages++
	list, log := r.kind.ListMethod(), lr.b.outputLog
	switch {
	case page.NextCursor == nil:
		return nil, nil
	case r.seenCursors[string(page.NextCursor)]:
		if string(page.NextCursor) != `""` { // which many servers send at the end
			log.Warn("list cursor repeated; further pages ignored", "method", list)
		}
		return nil, nil
	case r.size > lr.b.set.MaxMessage:
		log.Warn("list larger than limits.message; rest left out", "method", list)
		return nil, nil
	case len(r.items) > maxEntries:
		log.Warn("too many entries in the list; rest left out", "method", list,
			"max", maxEntries)
		r.items = r.items[:maxEntries]
		return nil, nil
	case r.pages == maxPages:
		log.Warn("too many pages in the list; rest left out", "method", list,
			"max", maxPages)
		return nil, nil
	}
	r.seenCursors[string(page.NextCursor)] = true
	return page.NextCursor, nil
}

// recordIssues logs and stores issues of a list that is being read.
func (lr *listReader) recordIssues(r *listRead, issues []catalog.Issue) {
	lr.logIssues(r.kind, issues)
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

// store stores the lists that were read, and the errors of the others. The argument counts is
// false if the connection is over: then markFailed settles the backend later, together with the
// reason for the end.
func (lr *listReader) store(read []*listRead, s serverInfo, counts bool) {
	b := lr.b
	raw, errs := b.lists.raw(), b.lists.errs()
	knownTools, _ := b.lists.tools()
	for _, r := range read {
		errs[r.kind] = r.err
	}
	// before the backend is settled, so that the status contains the issue
	b.shared.setIssue(supervise.IssueLists, cmp.Or(errs[:]...))
	for _, r := range read {
		if r.err != nil {
			continue
		}
		r.raw = catalog.MarshalList(r.kind, r.items)
		raw[r.kind] = r.raw
		if r.kind == catalog.Tools {
			lr.logChangedTools(knownTools, r.items)
			defer signal(b.set.toolsListed)
		}
	}
	b.known.save(raw, s)
	changed, unmatched := b.lists.store(read, s, time.Since(b.shared.startTime()), counts)
	if changed {
		b.publish()
	}
	b.logUnmatched(unmatched)
	b.logDeviations()
}
