package backends

import (
	"cmp"
	"slices"
	"time"

	"mcpgateway/backends/internal/supervise"
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
)

// A Status is the state of a backend at one moment. It describes the shared connection.
type Status struct {
	Name     string
	State    State
	Err      error                 // reason for a state other than Ready; nil = none is known
	NextTry  time.Time             // time of the next start, zero if none is scheduled
	Server   string                // name/version of its serverInfo
	Revision string                // protocol revision of the connection
	Counts   [catalog.NumKinds]int // number of permitted entries of each list
	// Settled is true if the backend has listed its catalog, or failed once, in this run of the
	// gateway. It is also true if the backend need not start to be listed (lazy, with a known
	// catalog), or is misconfigured.
	Settled     bool
	Listed      bool          // some list was read, in this run or an earlier one
	StartupTime time.Duration // time from the latest start to the latest listing or failure

	Findings
	// reason why its container may outlive the backend; "" = no reason is known, or no container
	ContainerWarning string
	Pins             PinStatus // tools that are not approved

	History
	Usage
}

// A History says since when a backend has its state, how often it was started again because it had
// ended or had failed to start, and its last error, which may be over. It starts from zero when a
// reload or a [Control] replaces the backend.
type History = supervise.History

// A Usage is what a backend does at one moment, over all of its connections. This includes those
// of principals, and those of a former backend of the same name, which end with their last call.
type Usage struct {
	InFlight    int        // calls that were sent and have no response
	Queued      int        // calls that wait for a slot or a connection
	Connections int        // connections that are ready
	PIDs        []int      // ids of its processes, ascending
	Instances   []Instance // with oauth.per: principal, by principal
}

// An Instance is the state of a backend with oauth.per: principal for one principal.
type Instance struct {
	Principal string // see [principal.Principal.Name]
	State     State
	Err       error // reason for a state other than Ready; nil = none is known
	NextTry   time.Time
	History
}

// Findings are what is wrong with the lists of a backend and with its filters.
type Findings struct {
	// globs of its filters that match none of its entries (see updateUnmatchedLocked), in the form
	// of config.Filter.Unmatched
	Unmatched []string
	// entries that were left out, and why
	Omitted  []catalog.Issue
	Repaired []catalog.Issue // entries that were repaired, and how
	// entries that some clients may not accept, and why
	Suspicious []catalog.Issue
}

// statusOf returns the status of a backend in a table.
func statusOf(t *backendTable, b *Backend) Status {
	s := Status{Name: b.cfg.Name, ContainerWarning: b.set.containers.Warning(b.containerBackend())}
	b.lists.fill(&s)
	s.Settled = s.Settled || b.needsNoStart()
	s.Server, s.Revision = b.known.detection.serverName()
	conn := connStatus(b)
	s.State, s.Err, s.NextTry, s.History = conn.State, conn.Err, conn.NextTry, conn.History
	s.Usage = usageOf(t, b.cfg.Name)
	return s
}

// connStatus returns the status of the shared connection.
func connStatus(b *Backend) Instance {
	bc := b.shared
	bc.mu.Lock()
	defer bc.mu.Unlock()
	i := Instance{Principal: b.instances.owner.Name(), State: bc.sup.State(),
		Err: bc.sup.Problem(), NextTry: bc.sup.RetryAt(), History: bc.sup.History()}
	if why := b.login.needed(); why != nil {
		i.State, i.Err, i.NextTry = NeedsLogin, why, time.Time{}
	}
	return i
}

// usageOf returns the usage of the backends with a name.
func usageOf(t *backendTable, name string) (u Usage) {
	for b := range t.withName(name) {
		if b.instances.owner == nil {
			u.Queued += b.limiter.slots.Queued() // instances use the same limiter
		}
		for _, bc := range b.conns() {
			u.add(bc)
		}
	}
	if current := t.byName[name]; current != nil {
		for _, one := range current.instances.all() {
			u.Instances = append(u.Instances, connStatus(one))
		}
	}
	slices.Sort(u.PIDs)
	slices.SortFunc(u.Instances,
		func(x, y Instance) int { return cmp.Compare(x.Principal, y.Principal) })
	return u
}

// add adds a connection.
func (u *Usage) add(bc *backendConn) {
	bc.mu.Lock()
	l := bc.link
	u.Queued += len(bc.calls.waiting) + len(bc.calls.retries) + len(bc.calls.subscribes)
	if bc.pid != 0 {
		u.PIDs = append(u.PIDs, bc.pid)
	}
	bc.mu.Unlock()
	if l != nil {
		u.Connections++
		u.InFlight += l.peer.CountCalls(isClientCall)
	}
}

// isClientCall reports whether a call in flight is not one of the gateway itself, such as a ping.
func isClientCall(c *peer.Call) bool {
	_, is := c.Handler.(*queuedCall)
	return is
}
