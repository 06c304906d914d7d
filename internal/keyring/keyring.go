// Package keyring stores values in the keyring of the operating system: the Secret Service on Linux
// and other Unix systems (GNOME Keyring, KWallet, KeePassXC), the login keychain on macOS, the
// Credential Manager on Windows.
//
// Each value is an item of the service "mcp-gateway" whose account is the name of the value. A
// value that is too long for one item of one of the systems is stored in several items (see
// parts.go).
//
// Lock order: Secrets' lock file, then Keyring.mu. Keyring.mu is not held while the keyring
// is used.
package keyring

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	library "github.com/zalando/go-keyring"
)

const (
	// MaxName is the largest length of a name, in bytes.
	MaxName = 200
	// MaxValue is the largest length of a value, in bytes.
	MaxValue = 64 << 10

	service = "mcp-gateway"
)

var (
	// ErrNotFound is the error for a name without a value.
	ErrNotFound = errors.New("not found in the keyring")
	// ErrUnavailable is the error if this machine has no keyring, or if the keyring cannot be used
	// now. errors.Is recognizes it in ErrLocked and in other errors.
	ErrUnavailable = errors.New("the keyring of the operating system is not available")
	// ErrLocked is the error if the keyring is locked and nobody has unlocked it.
	ErrLocked = fmt.Errorf("%w: it is locked, and was not unlocked", ErrUnavailable)
)

// A Keyring is the keyring of the user of this process. Its methods may be called concurrently; one
// of them uses the keyring at a time. The methods of all Keyrings do not wait for each other, so
// that a process should have one Keyring.
type Keyring struct {
	wait time.Duration

	mu      sync.Mutex
	current *access // nil = nobody uses the keyring
}

// access is a use of the keyring, which cannot be cancelled.
type access struct {
	deadline time.Time
	done     chan struct{} // closed when the keyring has answered
}

// New returns a Keyring whose methods wait at most wait, for example for a user who is asked for
// the password of the keyring. After this time they return an error that is ErrUnavailable.
func New(wait time.Duration) *Keyring { return &Keyring{wait: wait} }

// Get returns the value of a name. The error is ErrNotFound if there is none.
func (k *Keyring) Get(name string) (string, error) {
	return k.use(name, func() (string, error) { return get(name) })
}

// Set stores the value of a name, in place of an earlier value. Concurrent calls of Get return the
// old or the new value. If several processes may set the same name at the same time, they need a
// lock of their own; without one, an item that nobody reads may remain in the keyring.
func (k *Keyring) Set(name, value string) error {
	if len(value) > MaxValue {
		return fmt.Errorf("the value has %d bytes; the keyring stores at most %d", len(value),
			MaxValue)
	}
	_, err := k.use(name, func() (string, error) { return "", set(name, value) })
	return err
}

// Delete deletes the value of a name. The error is ErrNotFound if there is none.
func (k *Keyring) Delete(name string) error {
	_, err := k.use(name, func() (string, error) { return "", remove(name) })
	return err
}

// CheckName returns an error if name cannot be the name of a value: it has 1 to MaxName bytes, all
// printable characters except #.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name has %d bytes; at most %d are allowed", len(name), MaxName)
	case !utf8.ValidString(name):
		return errors.New("the name is not valid UTF-8")
	}
	for _, c := range name {
		if c == partMark || !unicode.IsPrint(c) {
			return fmt.Errorf("the name contains %q", c)
		}
	}
	return nil
}

// use calls f in a goroutine and waits for its end, at most k.wait together with the wait for
// another use. If f has not ended by then, use returns an error that is ErrUnavailable; f continues
// in its goroutine, because the library cannot be interrupted, and until its end each further use
// returns an error at once.
func (k *Keyring) use(name string, f func() (string, error)) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	if err := available(); err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	deadline := time.Now().Add(k.wait)
	timer := time.NewTimer(k.wait)
	defer timer.Stop()
	mine := &access{deadline: deadline, done: make(chan struct{})}
	for {
		other := k.begin(mine)
		if other == nil {
			break
		}
		if time.Now().After(other.deadline) {
			return "", k.unanswered()
		}
		select {
		case <-other.done:
		case <-timer.C:
			return "", k.unanswered()
		}
	}
	type result struct {
		value string
		err   error
	}
	ended := make(chan result, 1)
	go func() {
		value, err := recovered(f)
		k.end(mine)
		ended <- result{value, err}
	}()
	select {
	case r := <-ended:
		return r.value, r.err
	case <-timer.C:
		return "", k.unanswered()
	}
}

// begin makes mine the current use and returns nil, or returns another current use.
func (k *Keyring) begin(mine *access) (other *access) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil {
		return k.current
	}
	k.current = mine
	return nil
}

func (k *Keyring) end(mine *access) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = nil
	close(mine.done)
}

func (k *Keyring) unanswered() error {
	return fmt.Errorf("%w: it did not answer within %s; it may be waiting for its password",
		ErrUnavailable, k.wait)
}

// recovered calls f. The library panics if the Secret Service ends while it asks the user for a
// password; recovered returns an error in this case.
func recovered(f func() (string, error)) (value string, err error) {
	defer func() {
		if r := recover(); r != nil {
			value, err = "", fmt.Errorf("%w: it ended while it was used", ErrUnavailable)
		}
	}()
	return f()
}

// translate returns the error of this package for an error of the library.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, library.ErrNotFound):
		return ErrNotFound
	case isLocked(err):
		return ErrLocked
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
