package httpserver

import (
	"crypto/sha256"
	"slices"
)

// accessPolicy say who is let in. They are replaced as a whole; see [Server.Renew].
type accessPolicy struct {
	tokens         []credential
	origins, hosts []string
}

// A credential is a token, and who has it.
type credential struct {
	sum       [sha256.Size]byte
	principal principalID
}

// includes reports whether there is anybody that a request can be of by that name.
func (r *accessPolicy) includes(principal principalID) bool {
	if len(r.tokens) == 0 {
		return principal == 0
	}
	return slices.ContainsFunc(r.tokens, func(c credential) bool { return c.principal == principal })
}

// multiPrincipal reports whether there are several principals, of which each gets a share.
func (r *accessPolicy) multiPrincipal() bool { return len(r.tokens) > 1 }

// initialAccess are those that the Options ask for.
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

// newPrincipal returns one that nobody was.
func (srv *Server) newPrincipal() principalID {
	srv.lastPrincipal++
	return srv.lastPrincipal
}

// UpdateAccess makes these, in the place of those in the Options, the tokens, origins and hosts
// from now on. Who has a token that is still there keeps its sessions and what it has asked
// for. Those of a token that is not, and of nobody where there was none and is one now, are
// ended. It does not wait for that.
func (srv *Server) UpdateAccess(tokens, origins, hosts []string) {
	srv.mu.Lock()
	old := srv.access.Load()
	next := &accessPolicy{origins: origins, hosts: hosts}
	for _, token := range tokens {
		c := credential{sum: sha256.Sum256([]byte(token))}
		if i := slices.IndexFunc(old.tokens, func(o credential) bool { return o.sum == c.sum }); i >= 0 {
			c.principal = old.tokens[i].principal
		} else {
			c.principal = srv.newPrincipal()
		}
		next.tokens = append(next.tokens, c)
	}
	srv.access.Store(next) // under mu: open and receive see it, or are seen here
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
		srv.log.Info("sessions and requests have ended: their token is gone", "records", len(closing))
	}
}
