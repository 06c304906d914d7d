package gateway_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/mcptest"
)

// lodging opens a gateway whose only backend has a process for each guest, and has one
// guest call it so often, one after another. It returns the guest's process.
func lodging(t *testing.T, calls int) (client, own *mcptest.Peer) {
	t.Helper()
	h := newHouse(t, settings{sharing: map[string]string{"gh": "session"}}, "gh")
	client, _ = h.client()
	client.Send(request("0", "tools/list", "", able))
	h.backend("gh").Ready("ask")
	client.Message()
	for n := range calls {
		client.Send(first(fmt.Sprint(n + 1)))
		if own == nil {
			own = h.backend("gh")
			own.Greet(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"gh","version":"1"}}`)
		}
		own.Reply(own.Asked("tools/call").ID(), `{"content":[]}`)
		client.Message()
	}
	return client, own
}

// A guest goes some minutes after its last call, however many it has made, and what
// backends have opened for it goes with it.
func TestGuest_GoesAfterItsLastCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, own := lodging(t, 3)
		client.Close()
		time.Sleep(4 * time.Minute)
		own.WantNothing()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !own.Over() {
			t.Error("six minutes after the guest's last call its process still runs")
		}
	})
}

// A guest whose connection stays is there for all of it, and so is its process.
func TestGuest_StaysWhileItsConnectionDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, own := lodging(t, 1)
		time.Sleep(time.Hour)
		client.Send(first("9"))
		own.Reply(own.Asked("tools/call").ID(), `{"content":[]}`)
		client.Want(complete("9", `"content":[]}`))
	})
}
