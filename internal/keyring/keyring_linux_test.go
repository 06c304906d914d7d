package keyring

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	library "github.com/zalando/go-keyring"

	"mcpgateway/internal/mcptest/keyringtest"
)

const wait = 20 * time.Second

// withKeyring runs the calling test in a process that has an empty keyring, and returns true in
// that process.
func withKeyring(t *testing.T) bool {
	t.Helper()
	if os.Getenv("TEST_KEYRING_PID") != "" {
		return inKeyring(t, nil)
	}
	k := keyringtest.Start(t)
	return inKeyring(t, append(k.Env, "TEST_KEYRING_PID="+strconv.Itoa(k.PID)))
}

func TestGetSetDelete(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	k := New(wait)
	if _, err := k.Get("a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := k.Delete("a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	for _, value := range []string{"one", "", "two\nlines\n", " é\x00\xff ",
		headMark + "x:1:y", strings.Repeat("x", partSize), strings.Repeat("y", partSize+1),
		strings.Repeat("z", MaxValue), "short"} {
		if err := k.Set("a", value); err != nil {
			t.Fatal(err)
		}
		if got, err := k.Get("a"); got != value || err != nil {
			t.Errorf("%d bytes, want %d: %v", len(got), len(value), err)
		}
	}
	if err := k.Set("b", strings.Repeat("b", 3*partSize)); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Get("a"); got != "short" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"a", "b"} {
		if err := k.Delete(name); err != nil {
			t.Error(err)
		}
		if _, err := k.Get(name); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
}

// A value that is replaced or deleted leaves no parts in the keyring.
func TestPartsAreDeleted(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	k := New(wait)
	var old []string
	for _, value := range []string{strings.Repeat("x", 3*partSize),
		strings.Repeat("y", 2*partSize)} {
		if err := k.Set("a", value); err != nil {
			t.Fatal(err)
		}
		content, err := library.Get(service, "a")
		h, ok := parseHead(content)
		if err != nil || !ok || h.count != len(value)/partSize {
			t.Fatalf("%q: %v", content, err)
		}
		for i := range h.count {
			old = append(old, h.account("a", i))
		}
	}
	if err := k.Delete("a"); err != nil {
		t.Fatal(err)
	}
	for _, account := range old {
		if _, err := library.Get(service, account); !errors.Is(err, library.ErrNotFound) {
			t.Errorf("%s: %v", account, err)
		}
	}
}

// Part of a value is missing, for example because the user deleted it: this is an error, not a
// shorter value.
func TestIncompleteValue(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	k := New(wait)
	if err := k.Set("a", strings.Repeat("x", 3*partSize)); err != nil {
		t.Fatal(err)
	}
	content, err := library.Get(service, "a")
	if err != nil {
		t.Fatal(err)
	}
	h, _ := parseHead(content)
	if err := library.Delete(service, h.account("a", 1)); err != nil {
		t.Fatal(err)
	}
	if value, err := k.Get("a"); value != "" || err == nil ||
		!strings.Contains(err.Error(), "incomplete; set it again") {
		t.Errorf("%d bytes, %v", len(value), err)
	}
	if err := k.Set("a", "new"); err != nil {
		t.Error(err)
	}
	if value, err := k.Get("a"); value != "new" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
}

// Readers get the old or the new value while another goroutine replaces a value of several parts.
func TestConcurrentGetAndSet(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	writer, reader := New(wait), New(wait)
	values := []string{strings.Repeat("x", 2*partSize), strings.Repeat("y", 3*partSize)}
	if err := writer.Set("a", values[0]); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 10 {
			if err := writer.Set("a", values[i%2]); err != nil {
				t.Error(err)
			}
		}
	})
	for range 20 {
		if got, err := reader.Get("a"); !slices.Contains(values, got) || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	all.Wait()
}

func TestSecrets(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	k := New(wait)
	s := NewSecrets(k, filepath.Join(t.TempDir(), "lock"), wait)
	if names, err := s.Names(); len(names) != 0 || err != nil {
		t.Error(names, err)
	}
	if err := k.Set("oauth/x", "token"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 { // all names reach the index
		all.Go(func() {
			other := NewSecrets(New(wait), s.lock, wait)
			if err := other.Set(fmt.Sprint("name", i), fmt.Sprint("value", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	names, err := s.Names()
	if len(names) != 8 || !slices.IsSorted(names) || err != nil {
		t.Error(names, err)
	}
	if value, err := s.Get("name3"); value != "value3" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
	if err := s.Delete("name3"); err != nil {
		t.Error(err)
	}
	if err := s.Delete("name3"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Get("name3"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if names, err := s.Names(); len(names) != 7 || slices.Contains(names, "name3") || err != nil {
		t.Error(names, err)
	}
	if index, err := k.Get(indexName); strings.Contains(index, "value") || err != nil {
		t.Errorf("%q, %v", index, err)
	}
	for _, name := range []string{"../oauth/x", "oauth/x", "a b"} { // only secrets are found
		if value, err := s.Get(name); err == nil {
			t.Errorf("%s: %q", name, value)
		}
	}
}

// A name whose value was deleted by another program can be deleted from the index.
func TestSecretDeletedByOthers(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	k := New(wait)
	s := NewSecrets(k, filepath.Join(t.TempDir(), "lock"), wait)
	if err := errors.Join(s.Set("a", "1"), k.Delete(secretPrefix+"a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if names, err := s.Names(); len(names) != 0 || err != nil {
		t.Error(names, err)
	}
}

func TestMaxSecrets(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	k := New(wait)
	s := NewSecrets(k, filepath.Join(t.TempDir(), "lock"), wait)
	var names []string
	for i := range MaxSecrets {
		names = append(names, fmt.Sprintf("%0*d", MaxSecretName, i))
	}
	if err := s.setNames(names); err != nil {
		t.Fatal(err)
	}
	if err := s.Set("one", "x"); err == nil || !strings.Contains(err.Error(), "the maximum") {
		t.Error(err)
	}
	if err := s.Set(names[0], "x"); err != nil {
		t.Error(err)
	}
}

// A keyring that does not answer costs a call its wait, and later calls nothing. When it answers
// again, it can be used again.
func TestKeyringDoesNotAnswer(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	pid, err := strconv.Atoi(os.Getenv("TEST_KEYRING_PID"))
	if err != nil {
		t.Fatal(err)
	}
	k := New(200 * time.Millisecond)
	if err := k.Set("a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 20 {
		if _, err := k.Get("a"); !errors.Is(err, ErrUnavailable) ||
			!strings.Contains(err.Error(), "did not answer within 200ms") {
			t.Error(err)
		}
	}
	if passed := time.Since(start); passed > 2*time.Second {
		t.Errorf("20 calls took %s", passed)
	}
	k.mu.Lock()
	unanswered := k.current
	k.mu.Unlock()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-unanswered.done
	k.wait = wait
	if value, err := k.Get("a"); value != "1" || err != nil {
		t.Errorf("%q, %v", value, err)
	}
}

// The keyring ends while it is used, or between two uses.
func TestKeyringEnds(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	pid, err := strconv.Atoi(os.Getenv("TEST_KEYRING_PID"))
	if err != nil {
		t.Fatal(err)
	}
	k := New(wait)
	if err := k.Set("a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The bus starts a keyring again, which is locked, and whose user cannot be asked.
	for range 2 {
		if _, err := k.Get("a"); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
	}
}

func TestLockedKeyring(t *testing.T) {
	if !withKeyring(t) {
		return
	}
	pid, err := strconv.Atoi(os.Getenv("TEST_KEYRING_PID"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	k := New(wait)
	for {
		_, err := k.Get("a")
		if errors.Is(err, ErrLocked) && errors.Is(err, ErrUnavailable) {
			break
		}
		if !errors.Is(err, ErrUnavailable) { // the first call may find the keyring that ended
			t.Fatal(err)
		}
	}
}

// The session bus is gone, as after a logout.
func TestSessionBusIsGone(t *testing.T) {
	if !inKeyring(t, []string{"DBUS_SESSION_BUS_ADDRESS=unix:path=" + t.TempDir() + "/bus"}) {
		return
	}
	if err := New(wait).Set("a", "1"); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}
