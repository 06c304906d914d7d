package resourceserver

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync/atomic"

	"crypto"

	"github.com/go-jose/go-jose/v4"
)

// maxKeys is the maximum number of keys of the authorization server that are used.
const maxKeys = 64

// Sizes of RSA keys in bits. Smaller keys are weak, and larger keys slow.
const minRSABits, maxRSABits = 2048, 8192

// A publicKey is a key of the authorization server that verifies signatures.
type publicKey struct {
	id        string // kid; "" = none
	print     string // thumbprint
	algorithm jose.SignatureAlgorithm
	key       crypto.PublicKey
	retired   atomic.Bool // the authorization server no longer publishes the key
}

// A keySet is an immutable list of keys.
type keySet []*publicKey

// parseKeys parses a JWK set (RFC 7517). It ignores keys for other purposes and with other
// algorithms, and keys that cannot be parsed. It returns an error if no key is left.
func parseKeys(text []byte) (keySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("the keys are not a JWK set")
	}
	var all keySet
	for _, raw := range set.Keys {
		if k := parseKey(raw); k != nil && len(all) < maxKeys {
			all = append(all, k)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the JWK set has no key for RS256, ES256 or EdDSA")
	}
	return all, nil
}

// parseKey parses a JWK; nil = the key cannot be used.
func parseKey(raw []byte) *publicKey {
	var jwk jose.JSONWebKey
	if jwk.UnmarshalJSON(raw) != nil || !jwk.Valid() || !jwk.IsPublic() ||
		jwk.Use != "" && jwk.Use != "sig" {
		return nil
	}
	k := &publicKey{id: jwk.KeyID, key: jwk.Key}
	switch key := jwk.Key.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n >= minRSABits && n <= maxRSABits {
			k.algorithm = jose.RS256
		}
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			k.algorithm = jose.ES256
		}
	case ed25519.PublicKey:
		k.algorithm = jose.EdDSA
	}
	if k.algorithm == "" || jwk.Algorithm != "" && jwk.Algorithm != string(k.algorithm) {
		return nil
	}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil
	}
	k.print = base64.RawURLEncoding.EncodeToString(sum)
	return k
}

// replacedBy returns the keys of next. Keys that are also in s are the same pointers as in s; keys
// that are not in next are retired.
func (s keySet) replacedBy(next keySet) keySet {
	for _, old := range s {
		found := false
		for i, k := range next {
			if k.id == old.id && k.print == old.print {
				next[i], found = old, true
			}
		}
		if !found {
			old.retired.Store(true)
		}
	}
	return next
}

// verify returns the key that verifies a signature; nil = none does. Then found reports whether the
// header names a key of the set, so that no other key can verify the signature.
func (s keySet) verify(jws *jose.JSONWebSignature, header jose.Header) (
	key *publicKey, found bool) {
	for _, k := range s {
		if string(k.algorithm) != header.Algorithm || header.KeyID != "" && header.KeyID != k.id {
			continue
		}
		found = true
		if _, err := jws.Verify(k.key); err == nil {
			return k, true
		}
	}
	// If the token has no id, it may be signed with a key that is not known yet.
	return nil, found && header.KeyID != ""
}
