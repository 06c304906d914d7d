package gateway

import "testing"

// The test covers every state with every kind of method.
func TestMission_C_Lifecycle(t *testing.T) {
	states := [...]sessionState{uninitialized, awaitingInitialized, ready, closing}
	for method, want := range map[string][len(states)]admission{
		"initialize":           {serve, rejectDuplicate, rejectDuplicate, rejectClosing},
		"tools/list":           {rejectUninitialized, queue, serve, rejectClosing},
		"tools/call":           {rejectUninitialized, queue, serve, rejectClosing},
		"prompts/list":         {rejectUninitialized, queue, serve, rejectClosing},
		"no/such":              {rejectUninitialized, queue, serve, rejectClosing},
		"":                     {rejectUninitialized, queue, serve, rejectClosing},
		"Initialize":           {rejectUninitialized, queue, serve, rejectClosing},
		"server/discover":      {rejectUnknown, rejectUnknown, rejectUnknown, rejectUnknown},
		"subscriptions/listen": {rejectUninitialized, queue, serve, rejectClosing},
		// sent as a request
		"notifications/whatever": {rejectUninitialized, queue, serve, rejectClosing},
	} {
		for i, s := range states {
			if got := admit(s, method); got != want[i] {
				t.Errorf("admit(%d, %q) = %d, want %d", s, method, got, want[i])
			}
		}
	}
}
