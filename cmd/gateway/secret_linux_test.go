package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mcpgateway/internal/keyring"
	"mcpgateway/internal/mcptest/keyringtest"
	"mcpgateway/internal/mcptest/proctest"
)

// useKeyring makes the tests of this process use a keyring of their own.
func useKeyring(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, variable := range keyringtest.Start(t).Env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

// readUntil reads what the program writes to the terminal, up to the text want.
func readUntil(t *testing.T, person *os.File, want string) string {
	t.Helper()
	var all []byte
	buffer := make([]byte, 1<<10)
	for !bytes.Contains(all, []byte(want)) {
		if err := person.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := person.Read(buffer)
		if err != nil {
			t.Fatalf("%v after %q", err, all)
		}
		all = append(all, buffer[:n]...)
	}
	return string(all)
}

// isEchoing reports whether a terminal shows what the user enters.
func isEchoing(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// On a terminal, gateway secret set asks for the value and does not show it.
func TestSecretSetOnTerminal(t *testing.T) {
	useKeyring(t)
	tty, person := proctest.Terminal(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{"secret", "set", "docs"}, stdio{tty, out, tty})
	}()
	shown := readUntil(t, person, "Value of docs: ")
	if isEchoing(t, tty) {
		t.Error("the terminal shows the value")
	}
	if _, err := person.WriteString("s3cr3t value\n"); err != nil {
		t.Fatal(err)
	}
	shown += readUntil(t, person, "on SIGHUP")
	if got := <-code; got != exitOK || strings.Contains(shown, "s3cr3t") || !isEchoing(t, tty) {
		t.Errorf("exit code %d, shown %q", got, shown)
	}
	secrets, err := userSecrets()
	if err != nil {
		t.Fatal(err)
	}
	if value, err := secrets.Get("docs"); value != "s3cr3t value" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
}

// A signal while the value is entered turns the echo on again, and stores nothing.
func TestSecretSetIsInterrupted(t *testing.T) {
	useKeyring(t)
	tty, person := proctest.Terminal(t)
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"secret", "set", "docs"}, stdio{tty, tty, tty}) }()
	readUntil(t, person, "Value of docs: ")
	cancel()
	readUntil(t, person, "gateway: interrupted")
	if got := <-code; got != exitFailed || !isEchoing(t, tty) {
		t.Errorf("exit code %d, echo %v", got, isEchoing(t, tty))
	}
	secrets, err := userSecrets()
	if err != nil {
		t.Fatal(err)
	}
	if names, err := secrets.Names(); len(names) > 0 || err != nil {
		t.Error(names, err)
	}
	if _, err := secrets.Get("docs"); err == nil || err != keyring.ErrNotFound {
		t.Error(err)
	}
}
