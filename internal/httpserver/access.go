package httpserver

import (
	"crypto/sha256"
	"slices"
	"sync"
	"sync/atomic"

	"mcpgateway/internal/quota"
)

// An accessControl decides which HTTP requests are allowed, and which principal sends a request.
type accessControl struct {
	loopback bool   // Options.Loopback
	via      string // Options.Via
	policy   atomic.Pointer[accessPolicy]

	updating      sync.Mutex  // held by update
	lastPrincipal principalID // highest principalID used so far; guarded by updating
}

// accessPolicy contains the tokens, origins and hosts in force. It is immutable; see
// [Server.UpdateAccess].
type accessPolicy struct {
	tokens         []credential
	origins, hosts []string
}

// A credential is the hash of a token, and the principal to which the token belongs.
type credential struct {
	sum       [sha256.Size]byte
	principal principalID
}

// includes reports whether requests of principal are still allowed.
func (r *accessPolicy) includes(principal principalID) bool {
	if len(r.tokens) == 0 {
		return principal == 0
	}
	return slices.ContainsFunc(r.tokens, func(c credential) bool {
		return c.principal == principal
	})
}

// multiPrincipal reports whether there are several principals, whose shares are limited.
func (r *accessPolicy) multiPrincipal() bool { return len(r.tokens) > 1 }

// share returns the part of limit that one principal may use. If there are several principals, it
// is half of limit, so that one principal cannot use the whole limit.
func (r *accessPolicy) share(limit int) int {
	if r.multiPrincipal() {
		return quota.Half(limit)
	}
	return limit
}

// newAccessControl returns an accessControl with the policy given by the Options. A single token
// has the principal 0.
func newAccessControl(o *Options) *accessControl {
	a := &accessControl{loopback: o.Loopback, via: o.Via}
	r := &accessPolicy{origins: o.Origins, hosts: o.Hosts}
	for _, token := range o.Tokens {
		a.lastPrincipal++
		c := credential{sha256.Sum256([]byte(token)), a.lastPrincipal}
		if len(o.Tokens) == 1 {
			c.principal = 0
		}
		r.tokens = append(r.tokens, c)
	}
	a.policy.Store(r)
	return a
}

// update replaces the policy. Tokens that are also in the old policy keep their principals.
func (a *accessControl) update(tokens, origins, hosts []string) {
	a.updating.Lock()
	defer a.updating.Unlock()
	old := a.policy.Load()
	next := &accessPolicy{origins: origins, hosts: hosts}
	for _, token := range tokens {
		c := credential{sum: sha256.Sum256([]byte(token))}
		i := slices.IndexFunc(old.tokens, func(o credential) bool { return o.sum == c.sum })
		if i >= 0 {
			c.principal = old.tokens[i].principal
		} else {
			a.lastPrincipal++ // never used before
			c.principal = a.lastPrincipal
		}
		next.tokens = append(next.tokens, c)
	}
	a.policy.Store(next)
}
