package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/config"
	"mcpgateway/internal/text"
)

// autoTokenFile is the name of the file, in the state directory, with the token that replaces auto
// in auth.tokens.
const autoTokenFile = "token"

// maxAutoTokenFile bounds the size of this file, in bytes.
const maxAutoTokenFile = 4 << 10

// An autoToken is the token that replaces auto in auth.tokens.
type autoToken struct {
	log   *slog.Logger
	value string // "" = auto was not used yet
}

// tokens returns the tokens of a configuration. It replaces auto by the token in the state
// directory, and creates this token if there is none. A running gateway keeps the token even if the
// file changes. tokens returns an error if auto is used and there is no state directory, or if the
// file with the token cannot be created or has no valid token.
func (t *autoToken) tokens(l *config.Loaded, c *config.Config) ([]config.Token, error) {
	i := c.Auth.AutoToken()
	if i < 0 {
		return c.Auth.Tokens, nil
	}
	problem := func(format string, args ...any) error {
		e := l.ErrorAt(fmt.Sprintf("auth.tokens[%d]", i))
		e.Problem = fmt.Sprintf(format, args...)
		e.Hint = "set a token of your own: openssl rand -hex 32 makes a good one"
		return e
	}
	if c.StateDir == "" {
		return nil, problem("auto needs a state directory for the token, and this gateway " +
			"has no state directory: set state, and restart the gateway")
	}
	if t.value == "" {
		token, err := t.readOrCreate(autoTokenPath(c))
		if err != nil {
			return nil, problem("auto: %v", err)
		}
		t.value = token
	}
	all := slices.Clone(c.Auth.Tokens)
	all[i].Text = t.value
	return all, nil
}

func (t *autoToken) readOrCreate(path string) (string, error) {
	token, err := readAutoToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createAutoToken(path); err == nil {
			token, err = readAutoToken(path)
			t.log.Info("token created", "file", path)
		}
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		t.log.Warn("token readable by other users", "file", path,
			"text", "remove the file, and restart the gateway, which creates a new token")
	}
	for _, part := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(part)
		if err != nil {
			continue
		}
		if why := config.WritableByOthers(info); why != "" {
			t.log.Warn("token replaceable by other users", "file", part, "err", why,
				"text", "run chmod go-w "+text.ShellWord(part)+", or name a folder of your own with --state")
		}
	}
	return token, nil
}

// readAutoToken reads a token that createAutoToken or the user has written.
func readAutoToken(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxAutoTokenFile {
		return "", fmt.Errorf("%s is not a file with a token: remove it", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if !config.IsToken(token) {
		return "", fmt.Errorf("%s does not contain a valid token: remove it", path)
	}
	return token, nil
}

// createAutoToken writes a new token to a file with mode 0600. If the file exists, it stays, and
// createAutoToken returns nil: several gateways may create the token at the same time.
func createAutoToken(path string) error {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	text := hex.EncodeToString(secret[:]) + "\n"
	err := atomicfile.Create(path, []byte(text), filepath.Base(path)+".*.tmp")
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// autoTokenPath returns the path of the file with the token that replaces auto.
func autoTokenPath(c *config.Config) string { return filepath.Join(c.StateDir, autoTokenFile) }
