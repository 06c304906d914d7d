package mrtr

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/principal"
)

// The number of used tickets is bounded, one principal gets half, and no used ticket is removed
// before it expires. At the limit further tickets are rejected, but stay valid until there is
// room.
func TestUsedTickets_Limit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r UsedTickets
		want := func(id, name string, want error) {
			t.Helper()
			p := principal.FromToken(principal.TokenIdentity{Name: name})
			if err := r.Claim(&RerunClaim{id, p, time.Now().Add(time.Minute)}); err != want {
				t.Fatalf("%s of %s: %v, want %v", id, name, err, want)
			}
		}
		for n := range maxReruns / 2 {
			want(fmt.Sprint(n), "crowd", nil)
		}
		time.Sleep(30 * time.Second)
		want("more", "crowd", ErrTooManyReruns)
		want("7", "crowd", ErrAlreadyContinued)
		want("own", "other", nil)
		time.Sleep(30 * time.Second)
		want("7", "crowd", ErrAlreadyContinued)
		time.Sleep(2 * time.Second)
		want("more", "crowd", nil)
		want("own", "other", ErrAlreadyContinued)
		time.Sleep(2 * time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.used) != 0 {
			t.Errorf("%d are kept", len(r.used))
		}
	})
}
