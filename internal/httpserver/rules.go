package httpserver

import (
	"crypto/sha256"
	"slices"
)

// rules say who is let in. They are replaced as a whole; see [Server.Renew].
type rules struct {
	tokens         []credential
	origins, hosts []string
}

// A credential is a token, and who has it.
type credential struct {
	sum [sha256.Size]byte
	who principal
}

// knows reports whether there is anybody that a request can be of by that name.
func (r *rules) knows(who principal) bool {
	if len(r.tokens) == 0 {
		return who == 0
	}
	return slices.ContainsFunc(r.tokens, func(c credential) bool { return c.who == who })
}

// tellApart reports whether there are several principals, of which each gets a share.
func (r *rules) tellApart() bool { return len(r.tokens) > 1 }

// firstRules are those that the Options ask for.
func (d *Server) firstRules() *rules {
	r := &rules{origins: d.o.Origins, hosts: d.o.Hosts}
	for _, token := range d.o.Tokens {
		who := d.newPrincipal()
		if len(d.o.Tokens) == 1 {
			who = 0
		}
		r.tokens = append(r.tokens, credential{sha256.Sum256([]byte(token)), who})
	}
	return r
}

// newPrincipal returns one that nobody was.
func (d *Server) newPrincipal() principal {
	d.principals++
	return d.principals
}

// UpdateAccess makes these, in the place of those in the Options, the tokens, origins and hosts
// from now on. Who has a token that is still there keeps its sessions and what it has asked
// for. Those of a token that is not, and of nobody where there was none and is one now, are
// ended. It does not wait for that.
func (d *Server) UpdateAccess(tokens, origins, hosts []string) {
	d.mu.Lock()
	old := d.rules.Load()
	next := &rules{origins: origins, hosts: hosts}
	for _, token := range tokens {
		c := credential{sum: sha256.Sum256([]byte(token))}
		if i := slices.IndexFunc(old.tokens, func(o credential) bool { return o.sum == c.sum }); i >= 0 {
			c.who = old.tokens[i].who
		} else {
			c.who = d.newPrincipal()
		}
		next.tokens = append(next.tokens, c)
	}
	d.rules.Store(next) // under mu: open and receive see it, or are seen here
	var over []interface{ Close() error }
	for _, s := range d.sessions {
		if !next.knows(s.who) {
			over = append(over, s)
		}
	}
	for e := range d.visiting {
		if !next.knows(e.who) {
			over = append(over, e)
		}
	}
	d.mu.Unlock()
	for _, c := range over {
		_ = c.Close()
	}
	if len(over) > 0 {
		d.log.Info("sessions and requests have ended: their token is gone", "records", len(over))
	}
}
