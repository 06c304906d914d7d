package peer_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// A relay forwards progress after the response, with the token of the caller, until it is
// stopped. The number of relays is bounded.
func TestAProgressRelayForwardsProgressAfterTheResponse(t *testing.T) {
	inBubble(t, peer.Options{}, func(t *testing.T, k *testPeer) {
		var got []string
		follow := func(token wire.ID) (*peer.Call, *peer.ProgressRelay) {
			c, p := k.send(request("1", `,"_meta":{"progressToken":0}`), &peer.Call{Token: token})
			k.remote.SendResult(k.remote.NextMessage().ID(), "{}")
			c.wantOutcome(t)
			return p, p.RelayProgress(func(m wire.Message) { got = append(got, string(m.Token())) })
		}
		progress := func(p *peer.Call, want ...string) {
			t.Helper()
			k.remote.Sendf(
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`,
				p.ID())
			synctest.Wait()
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %q, want %q", got, want)
			}
			got = nil
		}
		one, trail := follow(`"p"`)
		progress(one, `"p"`)
		quiet, none := follow("")
		progress(quiet)
		none.Stop()
		(&peer.ProgressRelay{}).Stop()
		const bound = 4096
		for range bound - 1 {
			follow("7")
		}
		over, _ := follow("8")
		progress(over)
		progress(one, `"p"`)
		trail.Stop()
		trail.Stop()
		progress(one)
		last, _ := follow("9")
		progress(last, "9")
	})
}
