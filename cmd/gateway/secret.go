package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mcpgateway/internal/keyring"
)

func secretCommand(s stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Store secrets in the keyring of the operating system",
		Long: `secret stores, lists and removes secrets in the keyring of the operating system: the
Secret Service on Linux (GNOME Keyring, KWallet, KeePassXC), the keychain on macOS, the
Credential Manager on Windows. In the configuration, ${keyring:NAME} is replaced by the secret
NAME. A running gateway reads it again on SIGHUP and when its file changes.

    gateway secret set github            # asks for the value, without echo
    pass github | gateway secret set github
    gateway secret list                  # prints the names, not the values
    gateway secret rm github`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	set := &cobra.Command{
		Use:   "set NAME",
		Short: "Store a secret, read without echo or from stdin",
		Long: `set stores the secret NAME, in place of an earlier one. On a terminal it asks for the
value, without echo. Otherwise it reads the value from stdin to its end, and removes one
newline at its end. The value is never an argument, because other users can see arguments.`,
		Args: secretNameOnly,
		RunE: func(c *cobra.Command, args []string) error {
			return setSecret(c.Context(), s, args[0])
		},
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "Print the names of the secrets",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return listSecrets(s) },
	}
	rm := &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a secret",
		Args:  secretNameOnly,
		RunE:  func(_ *cobra.Command, args []string) error { return removeSecret(s, args[0]) },
	}
	cmd.AddCommand(set, list, rm)
	for _, sub := range cmd.Commands() {
		sub.Args = asUsageErrors(sub.Args)
	}
	return cmd
}

// secretNameOnly returns a usageError unless the arguments are the name of a secret.
func secretNameOnly(c *cobra.Command, args []string) error {
	if len(args) > 1 && c.Name() == "set" { // the second argument may be a secret: do not print it
		return usageError{
			errors.New(c.CommandPath() + " takes only the name of the secret, not its value"),
			"write the value to stdin, or enter it when the command asks for it",
		}
	}
	if err := oneArg("the secret")(c, args); err != nil {
		return err
	}
	if err := keyring.CheckSecretName(args[0]); err != nil {
		return usageErrorOf(c.CommandPath(), err)
	}
	return nil
}

func setSecret(ctx context.Context, s stdio, name string) error {
	secrets, err := userSecrets()
	if err != nil {
		return err
	}
	value, err := readSecret(ctx, s, name)
	if err != nil {
		return err
	}
	if err := secrets.Set(name, value); err != nil {
		return keyringError(err)
	}
	fmt.Fprintf(s.err, "gateway: stored; ${keyring:%s} refers to it. "+
		"A running gateway reads it on SIGHUP\n", name)
	return nil
}

// readSecret reads a secret: a line without echo from a terminal, otherwise all of stdin without
// one newline at its end.
func readSecret(ctx context.Context, s stdio, name string) (string, error) {
	var text []byte
	var err error
	if isTerminal(s.in) {
		text, err = readPassword(ctx, s, "Value of "+name+": ")
	} else {
		text, err = io.ReadAll(io.LimitReader(s.in, keyring.MaxValue+2))
	}
	if err != nil {
		return "", err
	}
	value, cut := strings.CutSuffix(string(text), "\n")
	if cut {
		value = strings.TrimSuffix(value, "\r")
	}
	switch {
	case value == "":
		return "", errors.New("the value is empty: nothing is stored")
	case len(value) > keyring.MaxValue:
		return "", fmt.Errorf("the value is longer than %d KiB: nothing is stored",
			keyring.MaxValue>>10)
	case strings.ContainsRune(value, 0):
		return "", errors.New("the value contains a NUL character: nothing is stored")
	}
	return value, nil
}

// readPassword reads a line from the terminal without echo. If ctx is done first, it turns the echo
// on again and returns errInterrupted.
func readPassword(ctx context.Context, s stdio, prompt string) ([]byte, error) {
	fd := int(s.in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, err
	}
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the process if the user does not enter a line
		text, err := term.ReadPassword(fd)
		done <- result{text, err}
	}()
	awaitStateChange(fd, before)
	fmt.Fprint(s.err, prompt)
	defer fmt.Fprintln(s.err)
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		_ = term.Restore(fd, before)
		return nil, errInterrupted
	}
}

// awaitStateChange waits until the state of a terminal differs from before, at most a second, so
// that the user is asked only when the echo is off.
func awaitStateChange(fd int, before *term.State) {
	for range 1000 {
		if now, err := term.GetState(fd); err != nil || *now != *before {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func listSecrets(s stdio) error {
	secrets, err := userSecrets()
	if err != nil {
		return err
	}
	names, err := secrets.Names()
	if err != nil {
		return keyringError(err)
	}
	for _, name := range names {
		fmt.Fprintln(s.out, printable(name))
	}
	if len(names) == 0 {
		fmt.Fprintln(s.err, "gateway: there are no secrets; gateway secret set NAME stores one")
	}
	return nil
}

func removeSecret(s stdio, name string) error {
	secrets, err := userSecrets()
	if err != nil {
		return err
	}
	err = secrets.Delete(name)
	if errors.Is(err, keyring.ErrNotFound) {
		return hintedError{
			fmt.Errorf("there is no secret %s", name), "gateway secret list prints the names",
		}
	}
	if err != nil {
		return keyringError(err)
	}
	fmt.Fprintf(s.err, "gateway: removed %s; a running gateway keeps the value that it has read\n",
		name)
	return nil
}

// keyringError adds a hint to an error of the keyring.
func keyringError(err error) error {
	switch {
	case errors.Is(err, keyring.ErrLocked):
		return hintedError{err, "unlock the keyring, for example by logging in to the desktop"}
	case errors.Is(err, keyring.ErrUnavailable):
		return hintedError{err, "without a keyring, write ${file:PATH} with a file that only you can " +
			"read, ${command:PROGRAM}, or env_file"}
	}
	return err
}
