package gateway

import "testing"

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
