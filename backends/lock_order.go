package backends

// Ranks of the mutexes of this package; see package lockrank. A goroutine takes them in this order.
// Mutexes of the same rank are never held together: lists.mu, sessionConns.mu, detection.mu and
// the mutexes of all backendConns; and the innermost ones, which are held during no other lock.
type (
	startupRank   [1]struct{}
	publisherRank [2]struct{}
	audienceRank  [2]struct{} // audienceView, never held together with the publisher's
	openingRank   [3]struct{} // sessionConns.opening
	stateRank     [4]struct{} // lists, sessionConns, detection, backendConn
	lifetimeRank  [5]struct{}
	innermostRank [6]struct{} // workers, clientSessions, responseGroup, changeSignal
)
