package oauthclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/filelock"
)

// A SecretStore stores secrets by name, for example in the operating system. Its methods may block
// for some seconds, and may be called concurrently.
type SecretStore interface {
	Get(name string) (string, error)
	Set(name, value string) error
	Delete(name string) error // succeeds if there is no secret of this name
}

// A Store keeps the grants of all backends: each in a file of its own, which only the owner can
// read. If there is a SecretStore that works, the secrets are there, and not in the file. Several
// processes may use one Store. Methods may be called concurrently.
type Store struct {
	dir     string      // "" = grants are kept in memory
	keyring SecretStore // nil = none

	// Of a Store without a directory:
	mu     sync.Mutex
	memory map[string]*Grant
	locks  map[string]chan struct{} // the lock of each grant: capacity 1
}

// NewStore returns the Store in a directory, which need not exist. With dir "", the Store is in
// memory, and ends with the process. keyring may be nil.
func NewStore(dir string, keyring SecretStore) *Store {
	return &Store{dir: dir, keyring: keyring, memory: make(map[string]*Grant),
		locks: make(map[string]chan struct{})}
}

// IsPersistent reports whether the grants outlive the process.
func (s *Store) IsPersistent() bool { return s.dir != "" }

// A storedGrant is the content of a file.
type storedGrant struct {
	*Grant
	InKeyring bool          `json:"in_keyring,omitempty"`
	Secrets   *GrantSecrets `json:"secrets,omitempty"` // nil = in the keyring
}

// key returns the name of the file, and of the entry in the keyring, for the grant of a principal
// at the backend name with this URL.
func key(name, url, principal string) string {
	sum := sha256.Sum256([]byte(url + "\x00" + principal))
	return name + "-" + hex.EncodeToString(sum[:8])
}

func (s *Store) path(key string) string { return filepath.Join(s.dir, key+".json") }

// maxGrant bounds the file of a grant, in bytes.
const maxGrant = 1 << 20

// load returns a grant, nil if there is none.
func (s *Store) load(key string) (*Grant, error) {
	if s.dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.memory[key], nil
	}
	text, err := os.ReadFile(s.path(key))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the stored login: %w", err)
	}
	stored := storedGrant{Grant: new(Grant)}
	if len(text) > maxGrant || json.Unmarshal(text, &stored) != nil {
		return nil, fmt.Errorf("the stored login %s cannot be read; delete the file and log in again",
			s.path(key))
	}
	switch {
	case stored.Secrets != nil:
		stored.Grant.Secrets = *stored.Secrets
	case s.keyring == nil:
		return nil, errors.New("the tokens are in the keyring of the system, which is not available; " +
			"unlock it, or log in again")
	default:
		secret, err := s.keyring.Get(keyringName(key))
		if err == nil {
			err = json.Unmarshal([]byte(secret), &stored.Grant.Secrets)
		}
		if err != nil {
			return nil, fmt.Errorf("read the tokens from the keyring of the system: %w; "+
				"unlock it, or log in again", err)
		}
	}
	return stored.Grant, nil
}

func keyringName(key string) string { return "oauth/" + key }

// save stores a grant. It returns an error if the grant is stored nowhere.
func (s *Store) save(key string, g *Grant) error {
	if s.dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.memory[key] = g
		return nil
	}
	stored := storedGrant{Grant: g, Secrets: &g.Secrets}
	if s.keyring != nil {
		secret, err := json.Marshal(g.Secrets)
		if err == nil && s.keyring.Set(keyringName(key), string(secret)) == nil {
			stored.InKeyring, stored.Secrets = true, nil
		}
	}
	text, err := json.Marshal(stored)
	if err == nil {
		err = atomicfile.Write(s.path(key), append(text, '\n'), atomicfile.Options{Sync: true})
	}
	if err != nil {
		return fmt.Errorf("store the login: %w", err)
	}
	return nil
}

// isInKeyring reports whether the secrets of a grant are in the keyring.
func (s *Store) isInKeyring(key string) bool {
	var stored storedGrant
	text, err := os.ReadFile(s.path(key))
	return err == nil && json.Unmarshal(text, &stored) == nil && stored.InKeyring
}

// remove deletes a grant. It succeeds if there is none. If the secrets cannot be deleted from the
// keyring, it deletes nothing, so that it can be repeated.
func (s *Store) remove(key string) error {
	if s.dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.memory, key)
		return nil
	}
	if s.keyring != nil {
		err := s.keyring.Delete(keyringName(key))
		if err != nil && s.isInKeyring(key) {
			return fmt.Errorf("delete the tokens from the keyring of the system: %w; "+
				"unlock it and repeat the logout", err)
		}
	}
	err := os.Remove(s.path(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete the stored login: %w", err)
	}
	return nil
}

// A version identifies the content of a stored grant: it changes whenever a process saves or
// removes the grant. The zero version is that of no grant.
type version struct {
	file  fs.FileInfo
	grant *Grant // of a Store in memory
}

// version returns the version of a stored grant. It reads nothing.
func (s *Store) version(key string) version {
	if s.dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return version{grant: s.memory[key]}
	}
	info, err := os.Stat(s.path(key))
	if err != nil {
		return version{}
	}
	return version{file: info}
}

// equal reports whether both versions have the same content.
func (v version) equal(other version) bool {
	if v.file == nil || other.file == nil {
		return v.file == other.file && v.grant == other.grant
	}
	return os.SameFile(v.file, other.file) && v.file.ModTime().Equal(other.file.ModTime()) &&
		v.file.Size() == other.file.Size()
}

// lock locks a grant against all other Authorizations, in this process and in others, until unlock
// is called.
func (s *Store) lock(ctx context.Context, key string) (unlock func(), err error) {
	if s.dir == "" {
		lock := s.memoryLock(key)
		select {
		case lock <- struct{}{}:
			return func() { <-lock }, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	release, err := filelock.LockContext(ctx, s.path(key)+".lock")
	switch {
	case err == nil:
		return func() { _ = release() }, nil
	case ctx.Err() != nil:
		return nil, err
	}
	return nil, fmt.Errorf("lock the stored login: %w", err)
}

// memoryLock returns the lock of a grant in memory.
func (s *Store) memoryLock(key string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[key] == nil {
		s.locks[key] = make(chan struct{}, 1)
	}
	return s.locks[key]
}
