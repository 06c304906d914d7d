package resourceserver

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/principal"
)

// claims are the claims of an access token (RFC 9068), or the members of an introspection response
// (RFC 7662), that the gateway uses. Names of claims are case-sensitive.
type claims struct {
	issuer, subject, clientID string
	audience                  []string
	expires, notBefore        time.Time // zero = absent
	scopes                    []string
	all                       map[string]json.RawMessage // every claim
}

// parseClaims parses a JSON object.
func parseClaims(text []byte) (*claims, error) {
	// A map compares names exactly, in contrast to the fields of a struct.
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil || all == nil {
		return nil, errNoObject
	}
	c := &claims{all: all}
	var azp string
	var scope, scp []string
	for _, claim := range []struct {
		name string
		read func(json.RawMessage) error
	}{
		{"iss", oneText(&c.issuer)}, {"sub", oneText(&c.subject)}, {"client_id", oneText(&c.clientID)},
		{"azp", oneText(&azp)}, {"aud", texts(&c.audience, false)}, {"exp", date(&c.expires)},
		{"nbf", date(&c.notBefore)}, {"scope", texts(&scope, true)}, {"scp", texts(&scp, true)},
	} {
		if raw, ok := all[claim.name]; ok && string(raw) != "null" {
			if claim.read(raw) != nil {
				return nil, errors.New("the claim " + claim.name + " has a wrong type")
			}
		}
	}
	if c.clientID == "" {
		c.clientID = azp
	}
	c.scopes = slices.Concat(scope, scp)
	return c, nil
}

var errNoObject = errors.New("it contains no JSON object")

func oneText(to *string) func(json.RawMessage) error {
	return func(raw json.RawMessage) error { return json.Unmarshal(raw, to) }
}

// texts reads a list of strings, or a string, which is one item, or, if split is true, a list of
// words.
func texts(to *[]string, split bool) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		if raw[0] == '[' {
			return json.Unmarshal(raw, to)
		}
		var one string
		if err := json.Unmarshal(raw, &one); err != nil {
			return err
		}
		*to = []string{one}
		if split {
			*to = strings.Fields(one)
		}
		return nil
	}
}

// latest is the last second of the year 9999. Later times count as this time.
const latest = 253402300799

// date reads a number of seconds since 1970, which may have a fraction.
func date(to *time.Time) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var seconds float64
		if err := json.Unmarshal(raw, &seconds); err != nil {
			return err
		}
		*to = time.Unix(int64(min(max(seconds, 1), latest)), 0)
		return nil
	}
}

// check checks the times, and that the token was issued for this gateway, or for a profile of it.
// An introspection response may have no iss and no exp.
func (c *claims) check(o *Options, now time.Time, isJWT bool) *InvalidTokenError {
	switch {
	case c.issuer != o.Issuer && (isJWT || c.issuer != ""):
		return invalid("the access token was not issued by %s", o.Issuer)
	case len(c.audience) == 0:
		return invalid("the access token has no aud; request one with resource=%s", o.Audience)
	case !slices.ContainsFunc(c.audience, func(aud string) bool {
		return aud == o.Audience || strings.HasPrefix(aud, strings.TrimSuffix(o.Audience, "/")+"/")
	}):
		return wrongAudience(o.Audience)
	case isJWT && c.expires.IsZero():
		return invalid("the access token has no exp")
	case !c.expires.IsZero() && !now.Before(c.expires.Add(clockSkew)):
		return invalid("the access token has expired; request a new one")
	case now.Add(clockSkew).Before(c.notBefore):
		return invalid("the access token is not valid yet")
	case c.subject == "" && c.clientID == "":
		return invalid("the access token names no subject: it has neither sub nor client_id")
	}
	return nil
}

func wrongAudience(resource string) *InvalidTokenError {
	return invalid("the access token is for another audience; request one with resource=%s",
		resource)
}

// verified returns the result for checked claims. A token without a subject belongs to its client.
func (c *claims) verified(o *Options) VerifiedToken {
	s := principal.Subject{Issuer: o.Issuer, ID: c.subject, Scopes: c.scopes}
	if s.ID == "" {
		s.ID, s.IsClient = c.clientID, true
	}
	who := principal.FromSubject(s)
	for _, selector := range o.Profiles {
		if selector.appliesTo(c) {
			who = who.WithProfile(selector.Profile)
		}
	}
	return VerifiedToken{Principal: who, Expires: c.expires.Add(clockSkew)}
}
