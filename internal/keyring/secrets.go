package keyring

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/filelock"
)

// Secrets are the values that the user stores by name, for ${keyring:NAME} in the configuration.
// Other values in the keyring, such as tokens, are not among them. Its methods may be called
// concurrently, also by several processes.
//
// No system can list the items of a service in the same way, so that the names are in an item of
// their own, the index. It is in the keyring, as the values are: it cannot be lost without them. A
// name is added before its value and removed after it. The index contains no values.
type Secrets struct {
	keyring *Keyring
	lock    string // file that is locked while the index changes
	wait    time.Duration
}

const (
	// MaxSecrets is the largest number of Secrets.
	MaxSecrets = 400
	// MaxSecretName is the largest length of the name of a secret, in characters.
	MaxSecretName = 128

	secretPrefix = "secret/"
	indexName    = "secrets"
)

// NewSecrets returns the Secrets in k. lock is the path of a file that all processes of the user
// use as a lock; it is created if needed. The methods that change a secret wait for it at most
// wait.
func NewSecrets(k *Keyring, lock string, wait time.Duration) *Secrets {
	return &Secrets{keyring: k, lock: lock, wait: wait}
}

// CheckSecretName returns an error if name cannot be the name of a secret.
func CheckSecretName(name string) error {
	valid := name != "" && len(name) <= MaxSecretName &&
		(isLetterOrDigit(name[0]) || name[0] == '_')
	for i := range len(name) {
		valid = valid && (isLetterOrDigit(name[i]) || strings.IndexByte("._/-", name[i]) >= 0)
	}
	if valid {
		return nil
	}
	return fmt.Errorf("the name of a secret has 1 to %d letters, digits and . _ / -, and begins "+
		"with a letter, a digit or _", MaxSecretName)
}

func isLetterOrDigit(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
}

// Get returns the value of a secret. The error is ErrNotFound if there is none.
func (s *Secrets) Get(name string) (string, error) {
	if err := CheckSecretName(name); err != nil {
		return "", err
	}
	return s.keyring.Get(secretPrefix + name)
}

// Set stores a secret, in place of an earlier one.
func (s *Secrets) Set(name, value string) error {
	if err := CheckSecretName(name); err != nil {
		return err
	}
	unlock, err := filelock.Lock(s.lock, s.wait)
	if err != nil {
		return err
	}
	defer unlock()
	names, err := s.Names()
	if err != nil {
		return err
	}
	if i, found := slices.BinarySearch(names, name); !found {
		if len(names) >= MaxSecrets {
			return fmt.Errorf("the keyring has %d secrets, which is the maximum; gateway secret rm NAME "+
				"removes one", MaxSecrets)
		}
		if err := s.setNames(slices.Insert(names, i, name)); err != nil {
			return err
		}
	}
	return s.keyring.Set(secretPrefix+name, value)
}

// Delete deletes a secret. The error is ErrNotFound if there is none.
func (s *Secrets) Delete(name string) error {
	if err := CheckSecretName(name); err != nil {
		return err
	}
	unlock, err := filelock.Lock(s.lock, s.wait)
	if err != nil {
		return err
	}
	defer unlock()
	missing := s.keyring.Delete(secretPrefix + name)
	if missing != nil && !errors.Is(missing, ErrNotFound) {
		return missing
	}
	names, err := s.Names()
	if err != nil {
		return err
	}
	if i, found := slices.BinarySearch(names, name); found {
		if err := s.setNames(slices.Delete(names, i, i+1)); err != nil {
			return err
		}
	}
	return missing
}

// Names returns the names of all secrets, sorted. It does not read the values.
func (s *Secrets) Names() ([]string, error) {
	text, err := s.keyring.Get(indexName)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	names := strings.Fields(text)
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (s *Secrets) setNames(names []string) error {
	return s.keyring.Set(indexName, strings.Join(names, "\n"))
}
