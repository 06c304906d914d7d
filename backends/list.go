package backends

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// What one backend may list of each kind; in bytes it is what a message may have.
// What is beyond is left out, and logged.
const (
	maxPages  = 1000
	maxListed = 10000
)

// all is every kind of list.
var all = [catalog.NumKinds]bool{true, true, true, true}

// A reading is one list of a backend's as it is being read, page by page.
type reading struct {
	kind     catalog.Kind
	items    []catalog.Item
	left     []catalog.Issue // what was left out
	repaired []catalog.Issue
	odd      []catalog.Issue // what was not, though some clients may not bear it
	ttl      time.Duration   // the shortest that a page says
	shared   bool            // all pages say that they are for everybody
	err      error
	params   []byte // of the request for the next page
	pages    int
	size     int
	seen     map[string]bool // cursors
	done     bool
}

// list reads lists of the backend's, side by side, and makes them known. A failure
// is logged, leaves the last listing as it was, and is tried again later.
func (b *Backend) list(ctx context.Context, p *peer.Peer, s server, which [catalog.NumKinds]bool) {
	var read []*reading
	for k := range catalog.Kind(catalog.NumKinds) {
		if which[k] {
			read = append(read, &reading{kind: k, done: !s.lists(k), seen: make(map[string]bool), shared: s.stateless})
		}
	}
	b.drain(ctx, p, s, read)
	if ctx.Err() == context.Canceled { // the conversation is over, and why is told elsewhere
		b.mu.Lock()
		raw := b.raw
		b.mu.Unlock()
		b.remember(raw, s)
		return
	}
	now, _ := b.shared.talk()
	if now != p { // likewise, but what was read counts
		read = slices.DeleteFunc(read, func(r *reading) bool { return r.err != nil })
	}
	for _, r := range read {
		if foreign(r.err) {
			b.shared.doubtful()
		}
		if r.err != nil && s.stateless {
			b.shared.reached(r.err)
		}
		if r.err != nil {
			r.err = fmt.Errorf("%s: %w", r.kind.ListMethod(), because(ctx, r.err))
			if repeats, tell := b.listFailed(r.kind); tell {
				b.says.Warn("the backend could not be listed what it has; it will be asked again", "err", r.err, "records", repeats)
			}
		}
	}
	b.listed(read, s, now == p)
}

// A list that keeps failing is logged at once, and again after firstRepeat, then after twice the
// time each, up to lastRepeat.
const (
	firstRepeat = time.Minute
	lastRepeat  = time.Hour
)

// failures folds the log of a list that keeps failing. The zero value is a list that did not fail.
type failures struct {
	count int       // since it was logged last
	next  time.Time // when it is logged again
	pause time.Duration
}

// listFailed counts a failure of a list. It reports whether to log it, and how many failures
// this record stands for.
func (b *Backend) listFailed(k catalog.Kind) (count int, tell bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &b.failures[k]
	f.count++
	now := time.Now()
	if now.Before(f.next) {
		return 0, false
	}
	if now.Sub(f.next) > f.pause {
		f.pause = 0 // it did not fail for a while
	}
	f.pause = min(max(2*f.pause, firstRepeat), lastRepeat)
	f.next = now.Add(f.pause)
	count, f.count = f.count, 0
	return count, true
}

// drain reads all pages of the lists. The requests for the next page of each go
// out together.
func (b *Backend) drain(ctx context.Context, p *peer.Peer, s server, read []*reading) {
	for {
		var open []*reading
		var requests []wire.Message
		for _, r := range read {
			if !r.done {
				open = append(open, r)
				requests = append(requests, b.stamped(wire.NewRequest("0", r.kind.ListMethod(), r.params), s, "", false))
			}
		}
		if len(open) == 0 {
			return
		}
		for i, a := range p.RoundTripAll(ctx, requests...) {
			next, err := b.page(open[i], s, a)
			open[i].err = err
			open[i].done = err != nil || next == nil
			if err == nil && next == nil {
				r := open[i]
				items, duplicates := catalog.RemoveDuplicates(r.kind, r.items)
				r.items = items
				b.takeFlaws(r, duplicates)
				b.takeFlaws(r, catalog.FindLookAlikes(r.kind, r.items))
			}
			open[i].params = append(append([]byte(`{"cursor":`), next...), '}')
		}
	}
}

// page takes one page and returns the cursor of the next one, nil if there is none.
// A cursor that comes twice ends the list: following it would never end.
func (b *Backend) page(r *reading, s server, a peer.Response) (next []byte, err error) {
	if a.Err != nil {
		return nil, a.Err
	}
	if failure := a.Part(wire.PartError); failure != nil {
		if e := wire.ReadError(failure); e.Code != wire.CodeMethodNotFound {
			return nil, e
		}
		return nil, nil // a server that has none
	}
	result := a.OneLine().Part(wire.PartResult)
	if t := protocol.ResultType(result); s.stateless && t != protocol.ResultComplete {
		return nil, fmt.Errorf("its result is %s", cmp.Or(t, "of no type that is known"))
	}
	page, err := catalog.ParsePage(r.kind, result)
	if err != nil {
		return nil, err
	}
	if r.kind == catalog.Tools {
		b.mendHeaders(&page, s)
	}
	b.takeFlaws(r, page.Issues)
	if r.pages == 0 || page.TTL < r.ttl {
		r.ttl = page.TTL
	}
	r.shared = r.shared && page.Public
	r.items = append(r.items, page.Items...)
	r.size += len(a.Raw())
	r.pages++
	list := r.kind.ListMethod()
	switch {
	case page.NextCursor == nil:
		return nil, nil
	case r.seen[string(page.NextCursor)]:
		if string(page.NextCursor) != `""` { // which many servers mean as the end
			b.says.Warn("the backend's pages run in a circle; the list ends there", "method", list)
		}
		return nil, nil
	case r.size > b.set.MaxMessage:
		b.says.Warn("the backend's list is longer than limits.message; the rest is left out", "method", list)
		return nil, nil
	case len(r.items) > maxListed:
		b.says.Warn("the backend lists too much; the rest is left out", "method", list, "max", maxListed)
		r.items = r.items[:maxListed]
		return nil, nil
	case r.pages == maxPages:
		b.says.Warn("the backend lists too many pages; the rest is left out", "method", list, "max", maxPages)
		return nil, nil
	}
	r.seen[string(page.NextCursor)] = true
	return page.NextCursor, nil
}

// takeFlaws logs flaws of a list that is being read, and keeps them.
func (b *Backend) takeFlaws(r *reading, flaws []catalog.Issue) {
	b.logFlaws(r.kind, flaws)
	for _, f := range flaws {
		switch {
		case f.Suspicious && len(r.odd) < maxListed:
			r.odd = append(r.odd, f)
		case f.Repaired && len(r.repaired) < maxListed:
			r.repaired = append(r.repaired, f)
		case !f.Repaired && !f.Suspicious && len(r.left) < maxListed:
			r.left = append(r.left, f)
		}
	}
}

// isOdd reports whether an entry that is odd is listed, and the one, too, without which it is not odd.
func (b *Backend) isOdd(k catalog.Kind, f catalog.Issue) bool {
	return b.lists(k, f.Item) && (f.ConflictsWith == "" || b.lists(k, f.ConflictsWith))
}

// listed takes what was read, or why it could not be. If the conversation is over, settles is
// false: the backend has answered only when the reason of that is known (line.failed).
func (b *Backend) listed(read []*reading, s server, settles bool) {
	b.mu.Lock()
	raw, known, errs := b.raw, b.items[catalog.Tools], b.listErrs
	b.mu.Unlock()
	for _, r := range read {
		errs[r.kind] = r.err
	}
	b.shared.ail(illLists, cmp.Or(errs[:]...)) // before anyone learns that the backend has answered
	for _, r := range read {
		if r.err == nil {
			raw[r.kind] = catalog.MarshalList(r.kind, r.items)
		}
		if r.err == nil && r.kind == catalog.Tools {
			b.logChanged(known, r.items)
		}
	}
	b.remember(raw, s)
	var unmatched []string
	b.answer(settles, func() (news bool) {
		for _, r := range read {
			news = b.freshen(r, s) || news
			b.listErrs[r.kind] = r.err
			if r.err == nil {
				b.leftOut[r.kind], b.odd[r.kind], b.repaired[r.kind] = r.left, r.odd, r.repaired
			}
			if r.err == nil && string(raw[r.kind]) != string(b.raw[r.kind]) {
				b.setItems(r.kind, r.items)
				news = true
			}
			if r.err == nil && b.rumours[r.kind] {
				b.rumours[r.kind] = false
				b.listing.Announcements[r.kind]++
				news = true
			}
		}
		news = news || s.instructions() != b.listing.Instructions || string(s.Capabilities) != string(b.listing.Capabilities)
		b.raw = raw
		unmatched = b.compareLocked()
		b.listing.Instructions, b.listing.Capabilities = s.instructions(), s.Capabilities
		return news
	})
	b.sayUnmatched(unmatched)
}

// maxChanged is how many changed tools of one list are logged one by one.
const maxChanged = 20

// logChanged says of each tool whose definition is another one than the last that was known, be it
// from an earlier run, that it is so: what a model is told a tool does was perhaps approved by a
// person. A tool that was gone in between is the same tool. Definitions are named by their hashes.
func (b *Backend) logChanged(known, read []catalog.Item) {
	if b.defined == nil || len(b.defined) > maxListed {
		b.defined = make(map[string]string)
		for _, item := range known {
			b.defined[item.Original] = hash(item.Raw())
		}
	}
	changed := 0
	for _, item := range read {
		was, now := b.defined[item.Original], hash(item.Raw())
		b.defined[item.Original] = now
		if was == "" || was == now {
			continue
		}
		if changed++; changed <= maxChanged {
			b.log.Warn("tool_changed: the backend defines a tool anew", "tool", item.Original, "was", was, "now", now)
		}
	}
	if more := changed - maxChanged; more > 0 {
		b.log.Warn("tool_changed: and more of its tools", "records", more)
	}
}

// hash names a definition, well enough to tell it from another one.
func hash(definition []byte) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:8])
}

// key is the key in a log record of what names an entry of a list.
func key(k catalog.Kind) string {
	if k == catalog.Tools {
		return "tool"
	}
	return "name"
}

// maxFlaws bounds the entries of one page of which it is logged that something is wrong with them; of the
// others only their number is.
const maxFlaws = 20

// logFlaws logs, once, what is wrong with the list of a backend and its entries.
func (b *Backend) logFlaws(k catalog.Kind, flaws []catalog.Issue) {
	if len(b.flaws) > maxListed {
		b.flaws = nil
	}
	fresh := 0
	for _, f := range flaws {
		if b.flaws[f] || f.Suspicious && !b.isOdd(k, f) {
			continue
		}
		if b.flaws == nil {
			b.flaws = make(map[catalog.Issue]bool)
		}
		b.flaws[f] = true
		if fresh++; fresh > maxFlaws {
			continue
		}
		switch {
		case f.WholeList:
			b.says.Warn("a list of the backend is null; it is taken for an empty one", "method", k.ListMethod())
		case f.Suspicious:
			b.says.Warn("a "+k.String()+" is listed as it is, though some clients may not bear it", key(k), f.Item, "err", f.Problem)
		case !f.Repaired:
			b.says.Warn("left out a "+k.String()+" that no client could bear", key(k), f.Item, "err", f.Problem)
		default:
			b.says.Info("repaired a "+k.String(), key(k), f.Item, "err", f.Problem)
		}
	}
	if more := fresh - maxFlaws; more > 0 {
		b.says.Warn("more entries of the list are wrong; gateway check names some", "method", k.ListMethod(), "records", more)
	}
}
