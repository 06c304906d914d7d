package httpserver

import (
	"crypto/sha256"
	"slices"
)

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

// initialAccess returns the policy given by the Options. A single token has the principal 0.
func (srv *Server) initialAccess() *accessPolicy {
	r := &accessPolicy{origins: srv.opts.Origins, hosts: srv.opts.Hosts}
	for _, token := range srv.opts.Tokens {
		principal := srv.newPrincipal()
		if len(srv.opts.Tokens) == 1 {
			principal = 0
		}
		r.tokens = append(r.tokens, credential{sha256.Sum256([]byte(token)), principal})
	}
	return r
}

// newPrincipal returns a principal that was never used before.
func (srv *Server) newPrincipal() principalID {
	srv.lastPrincipal++
	return srv.lastPrincipal
}

// UpdateAccess replaces the tokens, origins and hosts. Sessions and requests of remaining tokens
// continue. UpdateAccess closes the sessions and requests of removed tokens and, if the first token
// is added, the sessions and requests without a token. A token that was the only token at the start
// has the principal 0: if it is removed and no token remains, its sessions continue. UpdateAccess
// does not wait for the end of what it closes.
func (srv *Server) UpdateAccess(tokens, origins, hosts []string) {
	srv.mu.Lock()
	old := srv.access.Load()
	next := &accessPolicy{origins: origins, hosts: hosts}
	for _, token := range tokens {
		c := credential{sum: sha256.Sum256([]byte(token))}
		i := slices.IndexFunc(old.tokens, func(o credential) bool { return o.sum == c.sum })
		if i >= 0 {
			c.principal = old.tokens[i].principal
		} else {
			c.principal = srv.newPrincipal()
		}
		next.tokens = append(next.tokens, c)
	}
	srv.access.Store(next) // register and startStateless check the policy under mu
	var closing []interface{ Close() error }
	for _, s := range srv.sessions {
		if !next.includes(s.principal) {
			closing = append(closing, s)
		}
	}
	for e := range srv.statelessExchanges {
		if !next.includes(e.principal) {
			closing = append(closing, e)
		}
	}
	srv.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
	if len(closing) > 0 {
		srv.log.Info("closed sessions and requests of removed tokens", "records", len(closing))
	}
}
