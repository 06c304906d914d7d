package oidctest

import (
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// A TokenSpec describes an access token for IssueToken. The zero value is a valid token of
// DefaultUser.
type TokenSpec struct {
	User     string // the subject; empty = DefaultUser
	ClientID string // empty = "client"
	Scopes   []string
	Audience []string // empty = Options.Audience, or else the client
	// Lifetime of the token from now; 0 = Options.AccessTokenLifetime, negative = it has ended.
	Lifetime time.Duration
	// Claims of a JWT in addition to, and instead of, those that it has otherwise. A nil value
	// removes a claim.
	Claims map[string]any
	// Opaque makes the token a random string, also if Options.Opaque is not set.
	Opaque bool
	// Forgery makes a JWT invalid that is otherwise as described.
	Forgery Forgery
}

// A Forgery is a way in which the signature of a JWT is wrong.
type Forgery int

// The forgeries.
const (
	NotForged     Forgery = iota
	Unsigned              // alg: none
	SignedHMAC            // HS256, with the PEM text of the public key as the secret
	SignedByOther         // another key of the same algorithm, with the id of the provider's key
	UnknownKeyID          // another key, with a random id
)

// issue makes a token and records it, so that introspection knows it.
func (s *storage) issue(spec TokenSpec) (string, error) {
	g := &grant{
		user: cmp.Or(spec.User, DefaultUser), clientID: cmp.Or(spec.ClientID, "client"),
		scopes: spec.Scopes, audience: spec.Audience, time: time.Now(),
	}
	if len(g.audience) == 0 {
		g.audience = s.audience([]string{g.clientID})
	}
	s.mu.Lock()
	t := s.addTokenLocked(g, g.scopes, cmp.Or(spec.Lifetime, s.options.AccessTokenLifetime))
	s.mu.Unlock()
	if spec.Opaque || s.options.Opaque {
		if spec.Claims != nil || spec.Forgery != NotForged {
			return "", errors.New("an opaque token has no claims and no signature")
		}
		return op.CreateBearerToken(t.id, g.user, s.opaque)
	}
	claims := s.userClaims(g.user)
	maps.Copy(claims, map[string]any{
		"iss": s.issuer, "sub": g.user, "aud": g.audience, "client_id": g.clientID, "jti": t.id,
		"iat": t.issued.Unix(), "nbf": t.issued.Unix(), "exp": t.expires.Unix(),
		"scope": strings.Join(g.scopes, " "),
	})
	maps.Copy(claims, spec.Claims)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	return sign(payload, s.keys.current(), spec.Forgery)
}

// userClaims returns a new map with the additional claims of a user.
func (s *storage) userClaims(user string) map[string]any {
	claims := make(map[string]any)
	if s.options.Claims != nil {
		maps.Copy(claims, s.options.Claims(user))
	}
	return claims
}

// sign returns the payload as a JWT.
func sign(payload []byte, k key, f Forgery) (string, error) {
	signing := jose.SigningKey{Algorithm: k.alg, Key: jose.JSONWebKey{Key: k.private, KeyID: k.id}}
	switch f {
	case NotForged:
	case Unsigned:
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none","typ":"at+jwt"}`)) + "." + encode(payload) + ".", nil
	case SignedHMAC:
		der, err := x509.MarshalPKIXPublicKey(k.private.Public())
		if err != nil {
			return "", err
		}
		secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		signing = jose.SigningKey{Algorithm: jose.HS256,
			Key: jose.JSONWebKey{Key: secret, KeyID: k.id}}
	case SignedByOther, UnknownKeyID:
		other, err := newKey(string(k.alg))
		if err != nil {
			return "", err
		}
		if f == SignedByOther {
			other.id = k.id
		}
		signing.Key = jose.JSONWebKey{Key: other.private, KeyID: other.id}
	}
	signer, err := jose.NewSigner(signing, new(jose.SignerOptions).WithType("at+jwt"))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
