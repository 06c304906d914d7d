package gateway

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A guest stands for the clients that have no session and say the same of
// themselves: who they are, what they can do, which log messages they want. For a
// backend it is what a session is, for it is told these things, and asks. Guests of
// different principals are different ones.
type guest struct {
	g         *Gateway
	id        string // as a session's
	principal string
	stamp     protocol.ClientMeta
	name      string // name/version
	key       [sha256.Size]byte
	links     links // that the client was given

	// Guarded by guests.mu.
	uses  int         // sessions, calls, errands, tasks and subscriptions that have to do with it
	timer *time.Timer // ends it; nil while there are uses

	mu      sync.Mutex
	errands list.List // *errand, those that have not ended, the oldest first
	listens map[*listen]bool
}

const (
	// stay is how long a guest stays when nobody uses it: what backends have opened
	// for it serves the next call.
	stay = 5 * time.Minute
	// maxKept bounds the guests that a connection keeps for as long as it lasts, those it
	// has brought last. Earlier ones go as any other does.
	maxKept = 8
	// maxStamp bounds what a client says of itself in each request, in bytes: it is
	// kept, and told to backends.
	maxStamp = maxCapabilities
)

// guests are those there are. The zero value is none.
type guests struct {
	mu   sync.Mutex
	all  map[[sha256.Size]byte]*guest
	byID map[string]*guest
	per  map[string]int // principal → how many
	over bool           // the gateway is ending
}

var errEnding = errors.New("the gateway is ending")

var errCrowd = errors.New("too many different clients at one time; wait until some have gone")

// guest returns the guest that a request is from, whom it uses until it is left. If there are
// as many as there may be, one goes that nobody uses.
func (g *Gateway) guest(principal string, stamp protocol.ClientMeta) (*guest, error) {
	key := fingerprint(principal, stamp)
	all := &g.guests
	var gone *guest
	defer func() { gone.close() }() // when mu is free
	all.mu.Lock()
	defer all.mu.Unlock()
	if known := all.all[key]; known != nil {
		known.uses++
		if known.timer != nil {
			known.timer.Stop()
			known.timer = nil
		}
		return known, nil
	}
	whose, many := "", len(all.all) >= g.MaxStatelessClients
	if all.per[principal] >= share(principal, g.MaxStatelessClients) {
		whose, many = principal, true
	}
	if many {
		if gone = all.makeRoomLocked(whose); gone == nil {
			return nil, errCrowd
		}
	}
	if all.over {
		return nil, errEnding
	}
	stamp.Capabilities, stamp.ClientInfo = slices.Clone(stamp.Capabilities), slices.Clone(stamp.ClientInfo)
	fresh := &guest{g: g, id: newID(), principal: principal, stamp: stamp, name: nameOf(stamp.ClientInfo), key: key, uses: 1}
	if all.all == nil {
		all.all, all.byID, all.per = make(map[[sha256.Size]byte]*guest), make(map[string]*guest), make(map[string]int)
	}
	all.all[key], all.byID[fresh.id] = fresh, fresh
	all.per[principal]++
	g.Backends.OpenSession(fresh.id, stamp.Capabilities, true)
	if stamp.LogLevel != "" {
		g.Backends.SetLevel(fresh.id, stamp.LogLevel, func() {})
	}
	return fresh, nil
}

func fingerprint(principal string, stamp protocol.ClientMeta) [sha256.Size]byte {
	return sha256.Sum256(wire.Encode([]string{
		principal, stamp.Revision, string(stamp.Capabilities), string(stamp.ClientInfo), stamp.LogLevel,
	}))
}

// makeRoomLocked takes out a guest whom nobody uses, of that principal if it is not "", who
// is to be closed; nil if there is none.
func (all *guests) makeRoomLocked(principal string) *guest {
	for _, one := range all.all {
		if one.uses == 0 && (principal == "" || one.principal == principal) {
			all.removeLocked(one)
			return one
		}
	}
	return nil
}

// removeLocked takes a guest out; close has to follow when mu is free.
func (all *guests) removeLocked(one *guest) {
	if one.timer != nil {
		one.timer.Stop()
	}
	delete(all.all, one.key)
	delete(all.byID, one.id)
	if all.per[one.principal]--; all.per[one.principal] == 0 {
		delete(all.per, one.principal)
	}
}

// close ends what backends have for a guest who was taken out. A nil one has nothing.
func (v *guest) close() {
	if v != nil {
		v.g.Backends.CloseSession(v.id)
	}
}

// named returns the guest of that id, nil if there is none.
func (all *guests) named(id string) *guest {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byID[id]
}

// stayOn is one more use of a guest that is in use.
func (v *guest) stayOn() {
	v.g.guests.mu.Lock()
	defer v.g.guests.mu.Unlock()
	v.uses++
}

// leave ends a use. The guest stays for a while after the last.
func (v *guest) leave() {
	all := &v.g.guests
	all.mu.Lock()
	defer all.mu.Unlock()
	v.uses--
	if v.uses > 0 {
		return
	}
	v.timer = time.AfterFunc(stay, func() {
		all.mu.Lock()
		over := v.uses == 0 && all.all[v.key] == v
		if over {
			all.removeLocked(v)
		}
		all.mu.Unlock()
		if over {
			v.close()
		}
	})
}

// endGuests ends all guests, and what backends are doing for them, when the gateway
// ends.
func (g *Gateway) endGuests() {
	g.jobs.endAll()
	all := &g.guests
	all.mu.Lock()
	left := slices.Collect(maps.Values(all.all))
	all.mu.Unlock()
	for _, one := range left {
		for _, e := range one.underway() {
			e.abandon("the gateway is ending")
		}
	}
	all.mu.Lock()
	all.over = true
	left = slices.Collect(maps.Values(all.all))
	for _, one := range left {
		all.removeLocked(one)
	}
	all.mu.Unlock()
	for _, one := range left {
		one.close()
	}
}

// enter and exit keep the list of errands.
func (v *guest) enter(e *errand) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e.place = v.errands.PushBack(e)
}

func (v *guest) exit(e *errand) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.errands.Remove(e.place)
}

func (v *guest) underway() (all []*errand) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for at := v.errands.Front(); at != nil; at = at.Next() {
		all = append(all, at.Value.(*errand))
	}
	return all
}

// cause returns the errand to which something belongs that a backend says to the
// guest: the one on whose stream it came, which is certain, as it is that there is none if
// that is a stream of anything else, or of a call that is over: a guest may be several clients,
// and none is asked or told what is another's. On no call's stream it is the oldest that
// seems best, see errand.rank. That it is this guest's is certain already.
func (v *guest) cause(backend string, on peer.Origin) (e *errand, certain bool) {
	if on.Call != nil {
		if e, ok := on.Call.Tag.(*errand); ok && e.guest == v {
			return e, true
		}
	}
	if on.Call != nil || on.CallEnded {
		return nil, true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	best := 0
	for at := v.errands.Front(); at != nil; at = at.Next() {
		one := at.Value.(*errand)
		if one.route.Backend != backend {
			continue
		}
		if rank := one.rank(); rank > best {
			e, best = one, rank
		}
	}
	return e, false
}

// errCallOver is why a question is declined that came on a call's stream.
var errCallOver = wire.Errorf(wire.CodeInternalError, "The call to which this belongs is over, or its client cannot be asked anything")

// asked hands on what a backend asks of the guest.
func (v *guest) asked(backend string, r *peer.Request) {
	j := v.jobOf(backend, r.Message, r.Origin())
	if j == nil {
		e, certain := v.cause(backend, r.Origin())
		switch {
		case e != nil:
			e.ask(r, certain)
			return
		case certain:
			decline(r, errCallOver)
			return
		}
		j = v.jobAt(backend)
	}
	if j != nil {
		j.held.ask(r)
		return
	}
	r.Fail(wire.Errorf(wire.CodeMethodNotFound,
		"Method not found: %s: the client can be asked while a call of its is in flight, and none is", brief(r.Method())))
}

// hear and unhear keep the list of subscriptions.
func (v *guest) hear(l *listen) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.listens == nil {
		v.listens = make(map[*listen]bool)
	}
	v.listens[l] = true
}

func (v *guest) unhear(l *listen) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.listens, l)
}

func (v *guest) listening() []*listen {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.listens))
}

// subscribe has a backend tell of a resource, or stop to.
func (v *guest) subscribe(backend, uri string, on bool, to peer.ResponseChan) {
	method := mcp.MethodResourcesSubscribe
	if !on {
		method = mcp.MethodResourcesUnsubscribe
	}
	m := wire.NewRequest("0", string(method), wire.Encode(map[string]string{"uri": uri}))
	v.g.Backends.Subscribe(backend, uri, on, m, &peer.Call{Handler: to, SessionID: v.id})
}

// unwanted has a backend stop to tell of a resource, if no other subscription is to it.
func (v *guest) unwanted(backend, uri string) {
	for _, l := range v.listening() {
		l.mu.Lock()
		_, wanted := l.uris[uri]
		wanted = wanted || l.asked[uri]
		l.mu.Unlock()
		if wanted {
			return
		}
	}
	v.subscribe(backend, uri, false, make(peer.ResponseChan, 1))
}

// told hands on what a backend says to the guest: changes, to its subscriptions; log
// messages, to the request on whose behalf they are, if it wants any of that level.
func (v *guest) told(backend string, m wire.Message, on peer.Origin) {
	if m.Method() != string(mcp.MethodNotificationMessage) {
		for _, l := range v.listening() {
			l.told(backend, m)
		}
		return
	}
	if v.stamp.LogLevel == "" {
		return
	}
	if protocol.LogSeverity(stringAt(m, "params", "level")) < protocol.LogSeverity(v.stamp.LogLevel) {
		return
	}
	if v.jobOf(backend, m, on) != nil {
		return // no request waits for it
	}
	if e, _ := v.cause(backend, on); e != nil {
		if c := e.waiting(); c != nil && !c.s.isCrowded(backend) {
			c.r.Notify(logged(backend, protocol.StripMeta(m)))
		}
	}
}

// clientName returns the name/version of the client that has sent a request of the
// stateless era.
func clientName(m wire.Message) string {
	stamp, _ := protocol.ParseClientMeta(m)
	return nameOf(stamp.ClientInfo)
}

func nameOf(client []byte) string {
	name, _ := wire.Lookup(client, "name")
	version, _ := wire.Lookup(client, "version")
	if name == nil && version == nil {
		return ""
	}
	return brief(wire.Unquote(name) + "/" + wire.Unquote(version))
}
