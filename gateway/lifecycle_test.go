package gateway

import "testing"

// The lifecycle whole: every state against every kind of method.
func TestMission_C_Lifecycle(t *testing.T) {
	states := [...]state{fresh, greeted, ready, closing}
	for method, want := range map[string][len(states)]verdict{
		"initialize":             {serve, again, again, goodbye},
		"tools/list":             {refuse, hold, serve, goodbye},
		"tools/call":             {refuse, hold, serve, goodbye},
		"prompts/list":           {refuse, hold, serve, goodbye},
		"no/such":                {refuse, hold, serve, goodbye},
		"":                       {refuse, hold, serve, goodbye},
		"Initialize":             {refuse, hold, serve, goodbye},
		"server/discover":        {unknown, unknown, unknown, unknown},
		"subscriptions/listen":   {refuse, hold, serve, goodbye},
		"notifications/whatever": {refuse, hold, serve, goodbye}, // sent as a request
	} {
		for i, s := range states {
			if got := admit(s, method); got != want[i] {
				t.Errorf("admit(%d, %q) = %d, want %d", s, method, got, want[i])
			}
		}
	}
}
