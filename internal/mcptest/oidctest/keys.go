package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"sync"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// Algorithms of signing keys.
const (
	RS256 = string(jose.RS256)
	ES256 = string(jose.ES256)
	EdDSA = string(jose.EdDSA)
)

// A key signs tokens. It is an op.SigningKey.
type key struct {
	id      string
	alg     jose.SignatureAlgorithm
	private crypto.Signer
}

func (k key) ID() string                                  { return k.id }
func (k key) SignatureAlgorithm() jose.SignatureAlgorithm { return k.alg }
func (k key) Key() any                                    { return k.private }

// A publicKey is the key of a key in the key set. It is an op.Key.
type publicKey struct{ key }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return k.alg }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return k.private.Public() }

// newKey makes a key with a random id.
func newKey(alg string) (key, error) {
	k := key{id: "key-" + randomText(), alg: jose.SignatureAlgorithm(alg)}
	var err error
	switch alg {
	case RS256:
		k.private, err = rsa.GenerateKey(rand.Reader, 2048)
	case ES256:
		k.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case EdDSA:
		_, k.private, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("no keys for the algorithm %q: use RS256, ES256 or EdDSA", alg)
	}
	return k, err
}

// A keyring has the keys of a provider. The last one signs.
type keyring struct {
	mu   sync.Mutex
	keys []key
}

func newKeyring(alg string) (*keyring, error) {
	r := new(keyring)
	return r, r.rotate(alg)
}

func (r *keyring) rotate(alg string) error {
	k, err := newKey(alg)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, k)
	return nil
}

func (r *keyring) retire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = r.keys[len(r.keys)-1:]
}

func (r *keyring) current() key {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[len(r.keys)-1]
}

func (r *keyring) public() []op.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []op.Key
	for _, k := range r.keys {
		list = append(list, publicKey{k})
	}
	return list
}
