package backends

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/text"
	"mcpgateway/internal/wire"
)

// toolPins compares the tools that a backend lists with the lock file. They are compared once for
// each listing and each change of the lock file; a call only looks up the result. The list is the
// one that was read over the shared connection, which is also the one that clients get. lists.mu
// guards the fields except inForce, which only the methods called Locked replace.
type toolPins struct {
	backend string
	command string // that approves the tools
	inForce atomic.Pointer[pinState]
	digests map[string]toolDigest // by tool; nil = not computed
	logged  map[loggedDeviation]bool
}

// A pinState is the result of a comparison. It is immutable.
type pinState struct {
	mode config.Pin
	lock *pins.Lock // nil = empty
	// the listed tools that are not approved, by name; nil if the lock file has no entry for the
	// backend and mode is not PinBlock
	deviations map[string]deviation
}

// A deviation is a listed tool that is new, or differs from its approved definition.
type deviation struct {
	digest pins.DefinitionDigest
	isNew  bool
	fields []string // names of the fields that differ
}

type toolDigest struct {
	raw    []byte
	digest pins.DefinitionDigest
}

// A loggedDeviation identifies a deviation that was logged.
type loggedDeviation struct {
	mode   config.Pin
	tool   string
	digest pins.DefinitionDigest
}

func newToolPins(backend, command string, mode config.Pin, lock *pins.Lock) *toolPins {
	p := &toolPins{backend: backend, command: command}
	p.inForce.Store(&pinState{mode: mode, lock: lock})
	return p
}

// approved returns the approved tools of the backend. known is false if the lock file has no entry
// for the backend, or is unusable.
func (s *pinState) approved(backend string) (tools pins.Tools, known bool) {
	if s.lock == nil {
		return nil, false
	}
	tools, known = s.lock.Backends[backend]
	return tools, known
}

// blocks reports whether tools that are not approved are hidden.
func (p *toolPins) blocks() bool { return p.inForce.Load().mode == config.PinBlock }

// isCompared reports whether deviations are known for the list of the backend.
func (p *toolPins) isCompared() bool {
	s := p.inForce.Load()
	_, known := s.approved(p.backend)
	return s.mode == config.PinBlock || s.mode == config.PinWarn && known
}

// updateLocked compares the tools that the filters permit, and returns those that are not hidden.
func (p *toolPins) updateLocked(items []catalog.Item) []catalog.Item {
	s := *p.inForce.Load()
	s.deviations = nil
	if p.isCompared() {
		s.deviations = p.compareLocked(&s, items)
	}
	p.inForce.Store(&s)
	if s.mode != config.PinBlock || len(s.deviations) == 0 {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), func(i catalog.Item) bool {
		_, deviates := s.deviations[i.Original]
		return deviates
	})
}

func (p *toolPins) compareLocked(s *pinState, items []catalog.Item) map[string]deviation {
	approved, _ := s.approved(p.backend)
	deviations := make(map[string]deviation)
	digests := make(map[string]toolDigest, len(items))
	for _, item := range items {
		d := p.digests[item.Original]
		if !wire.SameSlice(d.raw, item.Raw()) {
			d = toolDigest{item.Raw(), pins.DigestOf(item.Raw())}
		}
		digests[item.Original] = d
		switch was := approved[item.Original]; {
		case was == nil:
			deviations[item.Original] = deviation{digest: d.digest, isNew: true}
		case was.Digest() != d.digest:
			deviations[item.Original] = deviation{digest: d.digest,
				fields: was.ChangedFields(pins.New(item.Raw()))}
		}
	}
	p.digests = digests
	return deviations
}

// permits returns an error if a tool must not be called because it is not approved. A tool that is
// not listed may be called if it was approved.
func (p *toolPins) permits(tool string) error {
	s := p.inForce.Load()
	if s.mode != config.PinBlock {
		return nil
	}
	if d, deviates := s.deviations[tool]; deviates {
		return p.notApproved(s, tool, d)
	}
	if approved, _ := s.approved(p.backend); approved[tool] == nil {
		return p.notApproved(s, tool, deviation{isNew: true})
	}
	return nil
}

// whyHidden returns the error of a call of a tool that is listed and hidden, nil for any other.
func (p *toolPins) whyHidden(tool string) error {
	s := p.inForce.Load()
	if d, deviates := s.deviations[tool]; deviates && s.mode == config.PinBlock {
		return p.notApproved(s, tool, d)
	}
	return nil
}

func (p *toolPins) notApproved(s *pinState, tool string, d deviation) error {
	switch {
	case s.lock != nil && s.lock.Problem != nil:
		return &contract.NotApprovedError{Reason: "its tools are hidden, because the lock file " +
			"is unusable: correct the file, then run " + p.command}
	case d.isNew:
		return &contract.NotApprovedError{Reason: fmt.Sprintf(
			"the tool %s is new and not approved: run %s",
			text.Truncate(tool, shownToolName), p.command)}
	}
	return &contract.NotApprovedError{Reason: fmt.Sprintf(
		"the definition of the tool %s has changed since its approval (%s): "+
			"run %s", text.Truncate(tool, shownToolName), fieldList(d.fields), p.command)}
}

// shownToolName bounds the name of a tool in an error, in bytes.
const shownToolName = 256

// fieldList joins the names of the first fields of a definition, and counts the others.
func fieldList(names []string) string {
	short := make([]string, 0, len(names))
	for _, name := range names {
		short = append(short, text.Truncate(name, 40))
	}
	return firstNames(short)
}

// A PinStatus describes the tools of a backend that are not approved.
type PinStatus struct {
	Mode config.Pin
	// Approved is true if the lock file has an entry for the backend.
	Approved bool
	// New and Changed are names of tools that the backend lists, sorted. Each changed one is
	// followed by the changed fields in parentheses.
	New, Changed []string
}

func (p *toolPins) status() PinStatus {
	s := p.inForce.Load()
	all := PinStatus{Mode: s.mode}
	_, all.Approved = s.approved(p.backend)
	for _, tool := range slices.Sorted(maps.Keys(s.deviations)) {
		if d := s.deviations[tool]; d.isNew {
			all.New = append(all.New, tool)
		} else {
			all.Changed = append(all.Changed, tool+" ("+fieldList(d.fields)+")")
		}
	}
	return all
}

// maxLoggedDeviations bounds the log records of one comparison with the lock file. The other
// deviations are counted.
const maxLoggedDeviations = 20

// takeUnloggedLocked returns the names of the tools whose deviations were not logged yet, sorted,
// and notes them as logged.
func (p *toolPins) takeUnloggedLocked(s *pinState) (tools []string) {
	if p.logged == nil || len(p.logged) > maxEntries {
		p.logged = make(map[loggedDeviation]bool)
	}
	for tool, d := range s.deviations {
		key := loggedDeviation{s.mode, tool, d.digest}
		if !p.logged[key] {
			p.logged[key] = true
			tools = append(tools, tool)
		}
	}
	slices.Sort(tools)
	return tools
}

// takeUnlogged returns the current state and the tools whose deviations were not logged yet.
func (l *lists) takeUnlogged() (*pinState, []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.pins.inForce.Load()
	return s, l.pins.takeUnloggedLocked(s)
}
