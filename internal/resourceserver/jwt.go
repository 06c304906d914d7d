package resourceserver

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// isJWT reports whether a token has the form of a signed JWT: three parts, of which the first is a
// JSON object.
func isJWT(token string) bool {
	header, _, _ := strings.Cut(token, ".")
	if strings.Count(token, ".") != 2 {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(header)
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(text)), "{")
}

// algorithms are the accepted signature algorithms. They are asymmetric: with a symmetric algorithm
// anybody could sign with the public key.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// verifyJWT verifies a JWT. It checks the claims first, because that costs nothing: only a token
// that would be accepted with a valid signature can cause a request for keys.
func (v *Verifier) verifyJWT(ctx context.Context, token string) (*cachedToken, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		if _, ok := err.(*jose.ErrUnexpectedSignatureAlgorithm); ok {
			return nil, invalid("the access token is not signed with RS256, ES256 or EdDSA")
		}
		return nil, invalid("the access token is malformed")
	}
	header := jws.Signatures[0].Protected
	if kind, _ := header.ExtraHeaders[jose.HeaderType].(string); !isAccessTokenType(kind) {
		return nil, invalid("the JWT is not an access token: its typ is not at+jwt or JWT")
	}
	c, err := parseClaims(jws.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, invalid("the access token is malformed: %v", err)
	}
	if err := c.check(&v.opts, time.Now(), true); err != nil {
		return nil, err
	}
	key, err := v.provider.verify(ctx, jws, header)
	if err != nil {
		return nil, err
	}
	return &cachedToken{
		VerifiedToken: c.verified(&v.opts), audience: c.audience,
		until: c.expires.Add(clockSkew), key: key,
	}, nil
}

// isAccessTokenType reports whether a JWT with this header typ may be an access token (RFC 9068
// §2.1). Many authorization servers set JWT, or nothing.
func isAccessTokenType(kind string) bool {
	switch strings.TrimPrefix(strings.ToLower(kind), "application/") {
	case "", "jwt", "at+jwt":
		return true
	}
	return false
}
