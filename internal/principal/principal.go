// Package principal has the identity of an authenticated client. The HTTP server determines the
// identity of each request; the gateway binds sessions, tasks, tickets and shares of limits to it.
package principal

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"

	"mcpgateway/internal/quota"
	"mcpgateway/internal/text"
)

// A Principal is the authenticated identity of a client: the token of the configuration that it
// sends, or the subject of its OAuth access token. A Principal is immutable, except that IsOnly can
// become false. All methods may be
// called on a nil *Principal, which is the client without authentication.
type Principal struct {
	key, name        string
	nameIsExact      bool // see ExactName
	profiles, scopes []string
	profileKey       string       // profiles, joined by commas
	shared           *atomic.Bool // other principals have access; nil = it is the only one
}

// A TokenIdentity describes a bearer token of the configuration.
type TokenIdentity struct {
	Name string // unique among the tokens; "" = the token has no name
	// Sum is the SHA-256 hash of a token. It identifies a token without a name.
	Sum [sha256.Size]byte
	// Number is the name in logs of a token without a name; 0 = no name.
	Number  int
	Profile string // "" = none
	// Only is true if no other principal has access. The principal may then use the whole of each
	// limit.
	Only bool
}

// FromToken returns the principal that holds a token.
func FromToken(t TokenIdentity) *Principal {
	p := &Principal{key: "token:" + t.Name, name: t.Name, nameIsExact: t.Name != "",
		shared: new(atomic.Bool)}
	p.shared.Store(!t.Only)
	if t.Name == "" {
		p.key = "token-sha256:" + hex.EncodeToString(t.Sum[:])
		if t.Number > 0 {
			p.name = strconv.Itoa(t.Number)
		}
	}
	if t.Profile != "" {
		p.profiles, p.profileKey = []string{t.Profile}, t.Profile
	}
	return p
}

// WithProfile returns the principal with a further profile: what it may use is the intersection of
// its profiles. On a nil *Principal, the result is a client without authentication that has this
// profile.
func (p *Principal) WithProfile(name string) *Principal {
	next := Principal{}
	if p != nil {
		next = *p
	}
	if !slices.Contains(next.profiles, name) {
		next.profiles = append(slices.Clone(next.profiles), name)
		slices.Sort(next.profiles)
		next.profileKey = strings.Join(next.profiles, ",")
	}
	return &next
}

// ProfileKey identifies the set of profiles of the principal; "" = none.
func (p *Principal) ProfileKey() string {
	if p == nil {
		return ""
	}
	return p.profileKey
}

// A Subject is the subject of an access token that an authorization server has issued.
type Subject struct {
	Issuer string // identifier of the authorization server
	// ID identifies the user at the issuer, or the client itself if IsClient is true.
	ID       string
	IsClient bool
	Scopes   []string
}

// FromSubject returns the principal of a subject. Its name is "oauth:" or "oauth-client:" and the
// id of the subject, without line breaks and other characters that a log must not contain, and
// shortened. The name of a token contains no colon, so that names of tokens and subjects differ.
func FromSubject(s Subject) *Principal {
	kind := "oauth:"
	if s.IsClient {
		kind = "oauth-client:"
	}
	// The issuer and the subject are hashed separately, so that no other pair has the same key.
	issuer, subject := sha256.Sum256([]byte(s.Issuer)), sha256.Sum256([]byte(s.ID))
	id := hex.EncodeToString(subject[:])
	name := clean(s.ID)
	exact := name == s.ID && !endsWithHash(name)
	if !exact { // other subjects may have the same cleaned name
		name += "~" + id[:8]
	}
	p := &Principal{
		key: kind + hex.EncodeToString(issuer[:16]) + ":" + id, name: kind + name,
		nameIsExact: exact, scopes: slices.Clone(s.Scopes), shared: new(atomic.Bool),
	}
	p.NoteOthers()
	return p
}

// endsWithHash reports whether an id looks like a cleaned name with the hash of another id.
func endsWithHash(id string) bool {
	at := len(id) - 9
	if at < 0 || id[at] != '~' {
		return false
	}
	_, err := hex.DecodeString(id[at+1:])
	return err == nil
}

// maxSubjectName is the maximum number of bytes of the id of a subject in a name.
const maxSubjectName = 128

// clean returns untrusted text in a form that is safe in logs and bounded.
func clean(id string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, text.Truncate(id, maxSubjectName))
}

// Key identifies the principal; "" without authentication. Different identities have different
// keys. A key stays the same when the gateway restarts, contains no secret and no untrusted text,
// and has at most 128 bytes.
func (p *Principal) Key() string {
	if p == nil {
		return ""
	}
	return p.key
}

// Name is the name of the principal in logs and audit records. It is "" without authentication, and
// for a token without a name that was the only token at the start.
func (p *Principal) Name() string {
	if p == nil {
		return ""
	}
	return p.name
}

// ExactName returns Name if it identifies the principal in each run of the gateway, together with
// the issuer of a subject. It returns "" without authentication, for a token without a name, and
// for a subject whose name is not its whole id.
func (p *Principal) ExactName() string {
	if p == nil || !p.nameIsExact {
		return ""
	}
	return p.name
}

// Profiles returns the names of the profiles that are selected for the principal, sorted; nil =
// none, so that the principal may use everything. The caller must not change the result.
func (p *Principal) Profiles() []string {
	if p == nil {
		return nil
	}
	return p.profiles
}

// Scopes returns the OAuth scopes of the access token; nil = none. The caller must not change the
// result.
func (p *Principal) Scopes() []string {
	if p == nil {
		return nil
	}
	return p.scopes
}

// Is reports whether p and other have the same identity.
func (p *Principal) Is(other *Principal) bool { return p.Key() == other.Key() }

// HasViewOf reports whether p has the same identity and the same profiles as other. What one
// request leaves for a later one, such as a task, belongs to one view: with other profiles, the
// same client may not be permitted to see it.
func (p *Principal) HasViewOf(other *Principal) bool {
	return p.Is(other) && p.ProfileKey() == other.ProfileKey()
}

// IsOnly reports whether no other principal has had access since p was created. It is true without
// authentication.
func (p *Principal) IsOnly() bool { return p == nil || p.shared == nil || !p.shared.Load() }

// NoteOthers notes that other principals have access now.
func (p *Principal) NoteOthers() {
	if p != nil && p.shared != nil {
		p.shared.Store(true)
	}
}

// Share returns the part of limit that the principal may use: the whole limit if it is the only
// one, otherwise half, so that one principal leaves room for the others.
func (p *Principal) Share(limit int) int {
	if p.IsOnly() {
		return limit
	}
	return quota.Half(limit)
}

// AcquireShare counts one more item of the principal under its Key. It returns false if all
// principals together have reached limit, or the principal has reached its Share.
func (p *Principal) AcquireShare(c *quota.Counter[string], limit int) bool {
	return c.Acquire(p.Key(), limit, p.Share(limit)) == quota.None
}

// LogAttrs returns the key and value that log records of the principal have; nil = none.
func (p *Principal) LogAttrs() []any {
	if p.Name() == "" {
		return nil
	}
	return []any{"principal", p.Name()}
}
