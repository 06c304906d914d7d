package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"mcpgateway/internal/atomicfile"
	"mcpgateway/internal/config"
)

// autoTokenFile is the name of the file in the state directory that keeps the token which
// auth.tokens: [auto] stands for.
const autoTokenFile = "token"

// maxAutoTokenFile bounds what is read of it, in bytes.
const maxAutoTokenFile = 4 << 10

// authTokens returns the tokens of a configuration. For auto it has the token that is kept in the state
// directory, which it makes if there is none. A gateway that runs keeps the token that it has.
func (a *app) authTokens(l *config.Loaded, c *config.Config) ([]string, error) {
	i := slices.Index(c.Auth.Tokens, config.AutoToken)
	if i < 0 {
		return c.Auth.Tokens, nil
	}
	problem := func(format string, args ...any) error {
		e := l.ErrorAt(fmt.Sprintf("auth.tokens[%d]", i))
		e.Problem, e.Hint = fmt.Sprintf(format, args...), "write a token of your own: openssl rand -hex 32 makes a good one"
		return e
	}
	if c.StateDir == "" {
		return nil, problem("auto keeps the token in the state directory, and this gateway has none: " +
			"set state, and start it again")
	}
	if a.autoToken == "" {
		token, err := a.readOrCreateToken(autoTokenPath(c))
		if err != nil {
			return nil, problem("auto: %v", err)
		}
		a.autoToken = token
	}
	all := slices.Clone(c.Auth.Tokens)
	all[i] = a.autoToken
	return all, nil
}

func (a *app) readOrCreateToken(path string) (string, error) {
	token, err := readAutoToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createAutoToken(path); err == nil {
			token, err = readAutoToken(path)
			a.log.Info("made a token for clients", "file", path)
		}
	}
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		a.log.Warn("other users can read the token: remove the file, and start the gateway again for a new one", "file", path)
	}
	for _, part := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(part)
		if err != nil {
			continue
		}
		if why := config.WritableByOthers(info); why != "" {
			a.log.Warn("other users can replace the token, because its file or folder "+why+
				": run chmod go-w, or name a folder of your own with --state", "file", part)
		}
	}
	return token, nil
}

// readAutoToken reads a token that createAutoToken has written, or that the user has put there.
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
		return "", fmt.Errorf("%s has no token that can be used: remove it", path)
	}
	return token, nil
}

// createAutoToken writes a new token for its owner alone. Of several gateways that do so at one time
// the first one's token stays.
func createAutoToken(path string) error {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	err := atomicfile.Create(path, []byte(hex.EncodeToString(secret[:])+"\n"), autoTokenFile+".*.tmp")
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// autoTokenPath returns the file with the token that auto stands for.
func autoTokenPath(c *config.Config) string { return filepath.Join(c.StateDir, autoTokenFile) }

// shellWord returns text as one word of a shell.
func shellWord(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%,=") == "" {
		return text
	}
	return quotedWord(text)
}

// quotedWord returns text in single quotes, as one word of a shell.
func quotedWord(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
