package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/keyring"
	"mcpgateway/internal/secretcmd"
)

const (
	// loadKeyringWait is the time for which a load of the configuration waits for the keyring,
	// which may ask the user for its password. Claude Code ends a server that does not start within
	// 30 s.
	loadKeyringWait = 20 * time.Second
	// userKeyringWait is that time for a command whose subject is the keyring.
	userKeyringWait = 2 * time.Minute
	// secretLockWait is the time for which a change of a secret waits for another gateway secret.
	secretLockWait = 10 * time.Second
)

// sources returns the access to values outside of the configuration file. Commands are killed when
// ctx is done. All loads use one Keyring: if the keyring does not answer, only one goroutine waits
// for it.
func (s *configSource) sources(ctx context.Context) *config.Sources {
	s.openKeyring.Do(func() {
		s.keyring = keyring.NewSecrets(keyring.New(loadKeyringWait), "", 0)
	})
	return &config.Sources{
		Keyring: func(name string) (string, error) { return keyringSecret(ctx, s.keyring, name) },
		Command: func(words []string, variables map[string]string) (string, error) {
			return secretcmd.Output(ctx, words, variables)
		},
	}
}

// keyringSecret returns a secret in the keyring. It returns early when ctx is done.
func keyringSecret(ctx context.Context, ring *keyring.Secrets, name string) (string, error) {
	type result struct {
		value string
		err   error
	}
	done := make(chan result, 1)
	go func() { // Get returns after loadKeyringWait at the latest
		value, err := ring.Get(name)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		if errors.Is(r.err, keyring.ErrNotFound) {
			r.err = fmt.Errorf("%w: gateway secret set %s stores it", r.err, name)
		}
		return r.value, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// userSecrets returns the secrets in the user's keyring, for commands that change them.
func userSecrets() (*keyring.Secrets, error) {
	dir := config.DefaultStateDir(os.LookupEnv)
	if dir == "" {
		return nil, errors.New("there is no state directory for the lock of the keyring: set HOME")
	}
	return keyring.NewSecrets(keyring.New(userKeyringWait), filepath.Join(dir, "secrets.lock"),
		secretLockWait), nil
}
