package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// The test covers every state with every kind of method.
func TestMission_C_Lifecycle(t *testing.T) {
	const serve, queue = "serve", "queue"
	uninit, duplicate, end := errNotInitialized.Error(), errInitialized.Error(), errClosing.Error()
	unknown := methodNotFound("server/discover").Error()
	states := [...]sessionState{uninitialized, awaitingInitialized, ready, closing}
	for method, want := range map[string][len(states)]string{
		"initialize":           {serve, duplicate, duplicate, end},
		"tools/list":           {uninit, queue, serve, end},
		"tools/call":           {uninit, queue, serve, end},
		"prompts/list":         {uninit, queue, serve, end},
		"no/such":              {uninit, queue, serve, end},
		"":                     {uninit, queue, serve, end},
		"Initialize":           {uninit, queue, serve, end},
		"server/discover":      {unknown, unknown, unknown, unknown},
		"subscriptions/listen": {uninit, queue, serve, end},
		// sent as a request
		"notifications/whatever": {uninit, queue, serve, end},
	} {
		for i, s := range states {
			got := serve
			switch queued, err := admit(s, method); {
			case err != nil && queued:
				got = "queue and " + err.Error()
			case err != nil:
				got = err.Error()
			case queued:
				got = queue
			}
			if got != want[i] {
				t.Errorf("admit(%d, %q) = %s, want %s", s, method, got, want[i])
			}
		}
	}
}

// The timer of requests that were withdrawn fires late: the request that was queued meanwhile still
// waits for notifications/initialized as long as any other.
func TestLifecycle_LateTimerExpiresNoLaterRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := mcptest.NewPeer(t, "client")
		var l lifecycle
		l.answered([]byte("{}"))
		late, expired := make(chan bool), make(chan []*peer.Request, 2)
		expire := func() { expired <- l.takeExpired().requests }
		first := peer.NewRequest(conn, wire.NewRequest("1", "tools/list", nil))
		second := peer.NewRequest(conn, wire.NewRequest("2", "tools/list", nil))
		l.admit(first, func() {
			<-late
			expire()
		})
		time.Sleep(initializedTimeout)
		synctest.Wait() // the timer has fired
		if !l.withdraw(first) {
			t.Error("the first request was not queued")
		}
		l.admit(second, expire)
		close(late)
		if all := <-expired; len(all) != 0 {
			t.Errorf("the earlier timer has expired %d requests", len(all))
		}
		began := time.Now()
		if all := <-expired; len(all) != 1 || all[0] != second ||
			time.Since(began) != initializedTimeout {
			t.Errorf("%d requests expired after %v", len(all), time.Since(began))
		}
	})
}
