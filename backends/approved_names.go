package backends

import (
	"log/slog"
	"maps"
	"sync/atomic"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/pins"
)

// approvedNames contains the lock file in force, and compares the owners of exposed tool names with
// it. publisher.mu guards its fields; methods called Locked need it.
type approvedNames struct {
	log    *slog.Logger
	lock   atomic.Pointer[pins.Lock] // never nil
	owners atomic.Pointer[catalog.NameOwners]
	// the lock and the pins that owners was made of
	ownersLock *pins.Lock
	ownersPins map[string]config.Pin
	logged     map[catalog.Move]bool
}

// ownersLocked returns the owners of names for backends with these values of tools.pin.
func (a *approvedNames) ownersLocked(pinOf map[string]config.Pin) *catalog.NameOwners {
	lock := a.lock.Load()
	if lock == a.ownersLock && maps.Equal(pinOf, a.ownersPins) {
		return a.owners.Load()
	}
	strict := make(map[string]bool)
	for name, pin := range pinOf {
		if pin == config.PinBlock {
			strict[name] = true
		}
	}
	owners := catalog.NewNameOwners(lock.Names, strict)
	a.ownersLock, a.ownersPins = lock, pinOf
	a.owners.Store(owners)
	return owners
}

// movesFrom returns the tool names of a snapshot that belong to another backend than in the lock
// file, except those between two backends without tools.pin.
func movesFrom(lock *pins.Lock, s *catalog.Snapshot, pinOf map[string]config.Pin) []catalog.Move {
	if len(lock.Names) == 0 {
		return nil
	}
	isPinned := func(backend string) bool {
		return pinOf[backend] == config.PinWarn || pinOf[backend] == config.PinBlock
	}
	var moves []catalog.Move
	for _, e := range s.Entries(catalog.Tools) {
		owner := lock.Names[e.Exposed]
		if e.Exposed != "" && owner != "" && owner != e.Backend &&
			(isPinned(owner) || isPinned(e.Backend)) {
			moves = append(moves, catalog.Move{Kind: catalog.Tools, Name: e.Exposed, From: owner,
				To: e.Backend})
		}
	}
	return moves
}

// logLocked logs once each name that belongs to another backend than in the lock file.
func (a *approvedNames) logLocked(s *catalog.Snapshot, pinOf map[string]config.Pin) {
	var moves []catalog.Move
	if a.logged == nil || len(a.logged) > maxLoggedNames {
		a.logged = make(map[catalog.Move]bool)
	}
	for _, m := range movesFrom(a.lock.Load(), s, pinOf) {
		if !a.logged[m] {
			a.logged[m] = true
			moves = append(moves, m)
		}
	}
	all := catalog.Transfers(moves)
	for _, t := range all[:min(len(all), maxLoggedMoves)] {
		a.log.Warn("name belongs to another backend than the approved one", "tool",
			firstNames(t.Names), "backend", t.To, "was", t.From,
			"text", "gateway approve "+t.To+" shows and accepts changes")
	}
	if more := len(all) - maxLoggedMoves; more > 0 {
		a.log.Warn("further names belong to other backends than the approved ones",
			"records", more)
	}
}

func (p *publisher) setLock(l *pins.Lock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.approved.lock.Store(l)
	for b := range p.table.Load().withName("") {
		b.lists.setLock(l)
	}
	p.shared.Add(1)
	p.publishLocked(false)
}
