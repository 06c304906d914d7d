package backends

// A backend that is removed from the table is drained. Its connections take no new calls: new and
// queued calls are redirected to the current backend of that name, or fail if there is none. Calls
// in flight end on their connection, which is closed afterwards.
//
//	Backend.drain ─ backendConn.startDraining for each: removes queued calls and subscriptions
//	  ├ serving is done: startLoop does not reconnect, connector.serve returns,
//	  │   runConn waits for the calls in flight (drainCalls) and disconnects
//	  ├ Backend.redirectSubscriptions, redirect
//	  └ Set.removeDrained, when nothing of the backend runs

// start starts the backend. It runs while it is in the table and Set.Run runs.
func (b *Backend) start() {
	if !b.lifetime.goWorker(b.shared.starts.runShared) {
		b.shared.markStopped(errStopped)
	}
	if b.login != nil && !b.login.ClientCredentials {
		b.lifetime.goWorker(b.login.watchLogouts)
	}
	if b.instances.neededSince.Load() != nil {
		b.lifetime.goWorker(b.instances.endWait)
	}
	if b.instances.enabled() && b.instances.owner == nil {
		b.lifetime.goWorker(b.instances.endIdle)
	}
}

// drain takes a removed backend out of service. It does not wait for its calls in flight.
func (b *Backend) drain() {
	var queued []*queuedCall
	for _, bc := range append([]*backendConn{b.shared}, b.perSession.drain()...) {
		calls, subscribed := bc.startDraining()
		queued = append(queued, calls...)
		for session, uris := range subscribed {
			b.redirectSubscriptions(session, uris)
		}
	}
	b.lifetime.remove()
	if b.instances.owner == nil { // an instance uses the limiter of the backend in the table
		queued = append(queued, b.limiter.slots.Close()...)
	}
	for _, q := range queued {
		q.b.redirect(q)
	}
	b.lifetime.whenEnded(func() { b.set.removeDrained(b) })
}

// successor returns the backend that serves a session now instead of a draining backend, which has
// the same name. With oauth.per: principal this is the instance of the session's principal, also if
// a reload has just set the key. If there is none, the error says why.
func (b *Backend) successor(session string) (*Backend, error) {
	next, err := b.set.backendOf(b.cfg.Name, session)
	if next == b {
		return nil, errRemoved
	}
	return next, err
}

// redirectSubscriptions moves subscriptions of a session to the successor, if there is one.
func (b *Backend) redirectSubscriptions(session string, uris []string) {
	if len(uris) == 0 {
		return
	}
	if next, err := b.successor(session); err == nil {
		next.conn(session, false).put(session, uris, true)
	}
}
