package oauthclient

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A testKeyring is a SecretStore in memory.
type testKeyring struct {
	mu     sync.Mutex
	values map[string]string
	fails  bool
}

var errNoKeyring = errors.New("no keyring")

func (k *testKeyring) Get(name string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, ok := k.values[name]; ok && !k.fails {
		return v, nil
	}
	return "", errNoKeyring
}

func (k *testKeyring) Set(name, value string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails {
		return errNoKeyring
	}
	k.values[name] = value
	return nil
}

func (k *testKeyring) Delete(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails {
		return errNoKeyring
	}
	delete(k.values, name)
	return nil
}

var testGrant = &Grant{Issuer: issuerURL, Resource: serverURL, Scopes: []string{"a"},
	Client: Registration{ID: "me", AuthStyle: AuthNone}, TokenEndpoint: issuerURL + "/token",
	Expires: time.Unix(1e9, 0).UTC(),
	Secrets: GrantSecrets{Access: "access-secret", Refresh: "refresh-secret", ClientSecret: "client-secret"}}

// all returns the content of all files of a directory, and reports files that others can read.
func all(t testing.TB, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var text strings.Builder
	for _, f := range files {
		part, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(part)
		info, err := os.Stat(f)
		if err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	return text.String()
}

func TestGrantIsStoredInThePrivateFileOrInTheKeyring(t *testing.T) {
	keyring := &testKeyring{values: make(map[string]string)}
	for name, k := range map[string]SecretStore{"file": nil, "keyring": keyring,
		"keyring that fails": &testKeyring{fails: true}} {
		dir := filepath.Join(t.TempDir(), "logins")
		s := NewStore(dir, k)
		if g, err := s.load("x"); g != nil || err != nil {
			t.Errorf("%s: %v, %v", name, g, err)
		}
		if err := s.save("x", testGrant); err != nil {
			t.Fatal(err)
		}
		g, err := NewStore(dir, k).load("x")
		if err != nil || g.Secrets != testGrant.Secrets || g.Issuer != testGrant.Issuer ||
			!g.Expires.Equal(testGrant.Expires) || g.Client != testGrant.Client {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
		if in := strings.Contains(all(t, dir), "secret\""); in == (name == "keyring") {
			t.Errorf("%s: the secrets are in the file: %v", name, in)
		}
		if !s.version("x").equal(s.version("x")) || s.version("x").equal(version{}) {
			t.Errorf("%s: the version is wrong", name)
		}
		if err := s.remove("x"); err != nil {
			t.Error(err)
		}
		if g, err := s.load("x"); g != nil || err != nil {
			t.Errorf("%s, removed: %v, %v", name, g, err)
		}
		if err := s.remove("x"); err != nil {
			t.Errorf("removed twice: %v", err)
		}
	}
	if len(keyring.values) != 0 {
		t.Errorf("left in the keyring: %v", keyring.values)
	}
}

func TestStoredLoginThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir, &testKeyring{values: make(map[string]string)})
	if err := s.save("x", testGrant); err != nil {
		t.Fatal(err)
	}
	_, err := NewStore(dir, nil).load("x")
	hasAll(t, err, "keyring of the system", "unlock it, or log in again")
	_, err = NewStore(dir, &testKeyring{}).load("x")
	hasAll(t, err, errNoKeyring.Error(), "unlock it, or log in again")
	if err := os.WriteFile(s.path("x"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.load("x")
	hasAll(t, err, "delete the file and log in again", s.path("x"))
}

// A login in memory ends with the process.
func TestStoreInMemory(t *testing.T) {
	s := NewStore("", nil)
	if err := s.save("x", testGrant); err != nil {
		t.Fatal(err)
	}
	g, err := s.load("x")
	if err != nil || g.Secrets != testGrant.Secrets || s.IsPersistent() {
		t.Errorf("%+v, %v", g, err)
	}
	v := s.version("x")
	if err := s.remove("x"); err != nil || s.version("x").equal(v) {
		t.Error(err)
	}
}

func TestLoginsOfBackendsAndPrincipalsAreSeparate(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range []string{key("a", "https://x.example", ""), key("a", "https://x.example", "p"),
		key("b", "https://x.example", ""), key("a", "https://y.example", "")} {
		if seen[k] || strings.ContainsAny(k, "/\\:") {
			t.Errorf("key %s", k)
		}
		seen[k] = true
	}
}

func TestDirectoryThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewStore(filepath.Join(file, "logins"), nil)
	if err := s.save("x", testGrant); err == nil {
		t.Error("saved")
	}
	if _, err := s.lock(t.Context(), "x"); err == nil {
		t.Error("locked")
	}
}

// A grant whose secrets cannot be deleted from the keyring is kept, so that the logout can be
// repeated. A keyring that does not work is no obstacle for a grant with its secrets in the file.
func TestRemoveNeedsTheKeyring(t *testing.T) {
	k := &testKeyring{values: make(map[string]string)}
	s := NewStore(t.TempDir(), k)
	if err := s.save("x", testGrant); err != nil {
		t.Fatal(err)
	}
	k.fails = true
	hasAll(t, s.remove("x"), "unlock it and repeat the logout")
	if s.version("x") == (version{}) {
		t.Error("removed without the keyring")
	}
	if err := s.save("y", testGrant); err != nil {
		t.Fatal(err)
	}
	if err := s.remove("y"); err != nil {
		t.Errorf("secrets in the file: %v", err)
	}
	k.fails = false
	if err := s.remove("x"); err != nil || len(k.values) > 0 || s.version("x") != (version{}) {
		t.Errorf("repeated: %v, left %v", err, k.values)
	}
}
