package backends

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/catalog"
	"mcpgateway/peer"
	"mcpgateway/wire"
)

// What one backend may list; in bytes it is what a message may have. What is beyond
// is left out, and logged.
const (
	maxPages = 1000
	maxTools = 10000
)

// list reads the backend's tools and makes them known. A failure is logged,
// leaves the last listing as it was, and is tried again later.
func (b *Backend) list(ctx context.Context, p *peer.Peer, s server) {
	tools, err := b.drain(ctx, p)
	if ctx.Err() == context.Canceled || err != nil && !b.talksOver(p) {
		return // the conversation is over, and why is told elsewhere
	}
	if err != nil {
		err = fmt.Errorf("tools/list: %w", because(ctx, err))
		b.log.Warn("the backend's tools could not be listed; it will be asked again", "err", err)
		b.listed(catalog.Listing{}, nil, err)
		return
	}
	raw := catalog.Marshal(tools)
	b.remember(raw, s.instructions())
	b.listed(b.allowed(tools, s.instructions()), raw, nil)
}

// allowed makes the listing of the tools that the configuration permits.
func (b *Backend) allowed(tools []catalog.Tool, instructions string) catalog.Listing {
	l := catalog.Listing{Backend: b.cfg.Name, Instructions: instructions}
	for _, t := range tools {
		if b.cfg.Tools.Permits(t.Own) {
			l.Tools = append(l.Tools, t)
		}
	}
	return l
}

// drain reads all pages. A cursor that comes twice ends the list: following it
// would never end.
func (b *Backend) drain(ctx context.Context, p *peer.Peer) ([]catalog.Tool, error) {
	var all []catalog.Tool
	seen := make(map[string]bool)
	var params []byte
	size := 0
	for range maxPages {
		m, err := p.Ask(ctx, wire.NewRequest("0", string(mcp.MethodToolsList), params))
		if err != nil {
			return nil, err
		}
		if failure := m.Part(wire.PartError); failure != nil {
			if e := wire.ReadError(failure); e.Code != wire.CodeMethodNotFound {
				return nil, e
			}
			return nil, nil // a server without tools
		}
		page, err := catalog.ParsePage(m.OneLine().Part(wire.PartResult))
		if err != nil {
			return nil, err
		}
		b.logFlaws(page.Flaws)
		all = append(all, page.Tools...)
		size += len(m.Raw())
		switch {
		case size > b.set.Limit && page.Next != nil:
			b.log.Warn("the backend's list is longer than limits.message; the rest is left out")
			return all, nil
		case len(all) > maxTools:
			b.log.Warn("the backend lists too many tools; the rest is left out", "max", maxTools)
			return all[:maxTools], nil
		case page.Next == nil:
			return all, nil
		case seen[string(page.Next)]:
			if string(page.Next) != `""` { // which many servers mean as the end
				b.log.Warn("the backend's pages run in a circle; the list ends there")
			}
			return all, nil
		}
		seen[string(page.Next)] = true
		params = append(append([]byte(`{"cursor":`), page.Next...), '}')
	}
	b.log.Warn("the backend lists too many pages; the rest is left out", "max", maxPages)
	return all, nil
}

// logFlaws says, once, what is wrong with the backend's tools.
func (b *Backend) logFlaws(flaws []catalog.Flaw) {
	if len(b.flaws) > maxTools {
		b.flaws = nil
	}
	for _, f := range flaws {
		if b.flaws[f] {
			continue
		}
		if b.flaws == nil {
			b.flaws = make(map[catalog.Flaw]bool)
		}
		b.flaws[f] = true
		if f.Mended {
			b.log.Info("mended a tool", "tool", f.Tool, "err", f.What)
		} else {
			b.log.Warn("left out a tool that no client could bear", "tool", f.Tool, "err", f.What)
		}
	}
}
