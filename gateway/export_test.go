package gateway

import (
	"fmt"
	"time"
)

// FillReruns has as many calls be sent anew as may be, within a time.
func (g *Gateway) FillReruns(within time.Duration) {
	for n := 0; g.usedTickets.claim(&rerunClaim{fmt.Sprint(n), "", time.Now().Add(within)}) == nil; n++ {
	}
}

// FillWatched has as many tasks be listened to as may be, but for so many.
func (g *Gateway) FillWatched(but int) {
	for g.taskListeners.acquire("", maxTaskListeners) {
	}
	for range but {
		g.taskListeners.release("")
	}
}
